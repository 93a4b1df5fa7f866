"""Many parameters, one flat tensor, and the part of it that each rank owns.

Communication wants few long one-dimensional tensors; a model has many short ones of all shapes.
So we lay the parameters end to end in one flat buffer, and make every parameter a *view* into it:
what a collective writes into the flat buffer, the model sees, without a copy.

    parameter   |---- a (6) ----|-- b (3) --|pad|        numel 9, padded to 12 for 4 ranks
    rank        |-- 0 --|-- 1 --|-- 2 --|-- 3 --|        shard of 3 elements each

The padding makes the flat buffer divisible by the number of ranks. It is always zero. A rank's
range may start or end in the middle of a parameter: rank 2 above owns the whole of b, rank 3 owns
nothing but padding. What a rank owns of a parameter is a `Slice`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn


def shard_bounds(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    """The range [start, end) of a flat buffer of `numel` elements that `rank` owns.

    All ranges have the same length, ceil(numel / world_size), so the last ones may run past numel
    (into the padding) or lie wholly in it. Together they tile the padded buffer.

    Raises ValueError for a negative numel, a world size below 1, or a rank outside of it.
    """
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(
            f"shard_bounds(numel={numel}, world_size={world_size}, rank={rank}): numel must be at "
            f"least 0, world_size at least 1, and rank in [0, world_size)"
        )
    shard = -(-numel // world_size)
    return rank * shard, (rank + 1) * shard


def flatten_params(module: nn.Module) -> torch.Tensor:
    """Copy all parameters of `module`, in registration order, into one new flat tensor [numel].

    A tied parameter (one tensor under two names) comes once. The result is detached and has the
    parameters' common dtype and device; a module without parameters gives an empty tensor. Raises
    ValueError, naming both, if two parameters differ in dtype or device.
    """
    named = list(module.named_parameters())
    check_alike(named)
    if not named:
        return torch.empty(0)
    return torch.cat([p.detach().reshape(-1) for _, p in named])


def unflatten_into(module: nn.Module, flat: torch.Tensor) -> None:
    """Make every parameter of `module` a view into `flat` [at least numel], without a copy.

    Each takes the values that stand in its part of `flat`, in its own shape. The order is that of
    `flatten_params`, a tied parameter has one part; elements past the last parameter are padding.
    The Parameter objects stay the same, so optimizers and tied modules keep seeing them. Elements
    of `flat` may have gaps between them, as in `x[::2]`.

    Raises ValueError, before anything is changed, if `flat` is not one-dimensional, is too short
    or has another dtype or device than the parameters, or if these cannot share one flat tensor.
    """
    named = list(module.named_parameters())
    check_alike(named)
    numel = sum(p.numel() for _, p in named)
    if flat.dim() != 1 or flat.numel() < numel:
        raise ValueError(
            f"unflatten_into needs a flat tensor of at least {numel} elements, "
            f"got shape {tuple(flat.shape)}"
        )
    if named:
        first = named[0][1]
        if flat.dtype != first.dtype or flat.device != first.device:
            raise ValueError(
                f"flat is {flat.dtype} on {flat.device}, the parameters are {first.dtype} on "
                f"{first.device}"
            )
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()


def check_alike(named: list[tuple[str, torch.Tensor]]) -> None:
    """Raise ValueError, naming both, if two of the tensors cannot share one flat buffer."""
    for name, p in named[1:]:
        first_name, first = named[0]
        if p.dtype != first.dtype or p.device != first.device:
            raise ValueError(
                f"{first_name} ({first.dtype} on {first.device}) and {name} ({p.dtype} on "
                f"{p.device}) cannot share one flat buffer; flatten them separately"
            )


@dataclass(frozen=True)
class Span:
    """Where one parameter lies in the flat buffer: elements [start, end)."""

    name: str
    shape: torch.Size
    start: int
    end: int


@dataclass(frozen=True)
class Slice:
    """What one rank owns of one parameter.

    Elements [start, end) of the flattened parameter, at [offset, offset + end - start) of the
    rank's shard.
    """

    name: str
    start: int
    end: int
    offset: int


class FlatLayout:
    """The map of a flat buffer: which parameter lies where, and which rank owns what.

    Pure arithmetic; it holds no tensor. `named_shapes` are (name, shape) in flat order. Sizes in
    elements: `numel` (without padding), `padded_numel` (a multiple of the world size),
    `shard_numel` (what each rank owns), `padding`.
    """

    def __init__(self, named_shapes: Iterable[tuple[str, torch.Size]], world_size: int):
        self.world_size = world_size
        self.spans: list[Span] = []
        offset = 0
        for name, shape in named_shapes:
            end = offset + torch.Size(shape).numel()
            self.spans.append(Span(name, torch.Size(shape), offset, end))
            offset = end
        self.numel = offset
        start, end = shard_bounds(self.numel, world_size, 0)
        self.shard_numel = end - start
        self.padded_numel = self.shard_numel * world_size
        self.padding = self.padded_numel - self.numel

    def slices(self, rank: int) -> list[Slice]:
        """What `rank` owns of each parameter: a list in flat order, nothing empty in it.

        A parameter that crosses a bound of the rank's range is cut there. Padding is in no slice.
        """
        first, last = shard_bounds(self.numel, self.world_size, rank)
        found = []
        for span in self.spans:
            start, end = max(span.start, first), min(span.end, last)
            if start < end:
                found.append(Slice(span.name, start - span.start, end - span.start, start - first))
        return found

    def views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Each parameter's view of `flat` [padded_numel], in its own shape."""
        return {s.name: flat[s.start : s.end].view(s.shape) for s in self.spans}

    def shard(self, flat: torch.Tensor, rank: int) -> torch.Tensor:
        """The range of `flat` [padded_numel] that `rank` owns: a view [shard_numel]."""
        start, end = shard_bounds(self.numel, self.world_size, rank)
        return flat[start:end]
