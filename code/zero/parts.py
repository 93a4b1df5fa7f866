"""How a tensor is cut along one dimension over the ranks of a group, and put together again.

Tensor parallelism cuts weights this way, and the last layer's outputs. The cut leaves no padding:
lengths that do not divide give parts that differ by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from . import comm


@dataclass(frozen=True)
class Cut:
    """A tensor that is `length` long in dimension `dim` is divided over `group`.

    The dimension consists of `blocks` equal blocks, and every rank has one range of each block.
    With 3 blocks, the queries, keys and values that follow one another in one weight are each cut
    for themselves. A parameter that was cut carries its Cut as the attribute `tp_cut`.
    """

    group: comm.Group
    dim: int
    length: int
    blocks: int = 1

    @property
    def block(self) -> int:
        """The length of one block."""
        return self.length // self.blocks

    def bounds(self, rank: int | None = None) -> tuple[int, int]:
        """The range [start, end) of every block that `rank` (this rank, if None) has."""
        rank = comm.rank(self.group) if rank is None else rank
        ranks = comm.world_size(self.group)
        return rank * self.block // ranks, (rank + 1) * self.block // ranks


def take(whole: Tensor, cut: Cut) -> Tensor:
    """This rank's part of a tensor that every rank of the group has: a contiguous copy."""
    start, end = cut.bounds()
    starts = [b * cut.block + start for b in range(cut.blocks)]
    return torch.cat([whole.narrow(cut.dim, s, end - start) for s in starts], cut.dim)


def join(part: Tensor, cut: Cut, name: str = "") -> Tensor:
    """The whole tensor from every rank's part, the reverse of `take`. Collective over the group.

    An all-gather needs parts of one size, so shorter parts travel padded.
    """
    ranks = comm.world_size(cut.group)
    rows = part.detach().movedim(cut.dim, 0)
    longest = cut.blocks * -(-cut.block // ranks)
    flat = rows.new_zeros(ranks, longest, *rows.shape[1:])
    flat[comm.rank(cut.group), : len(rows)] = rows
    comm.all_gather(flat.view(-1), group=cut.group, name=f"parts of {name}")
    lengths = [end - start for start, end in map(cut.bounds, range(ranks))]
    pieces = [
        flat[r, b * length : (b + 1) * length]
        for b in range(cut.blocks)
        for r, length in enumerate(lengths)
    ]
    return torch.cat(pieces).movedim(0, cut.dim).contiguous()


def whole(tensor: Tensor, p: nn.Parameter, name: str = "") -> Tensor:
    """`tensor`, which is `p` or its gradient, as the unsplit model has it: a copy. Collective."""
    cut = getattr(p, "tp_cut", None)
    return tensor.detach().clone() if cut is None else join(tensor, cut, name)


def whole_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters by name, as the unsplit model has them, on every rank. Collective.

    Under ZeRO-3 call it inside `with opt.full_params():`.
    """
    return {name: whole(p, p, name) for name, p in model.named_parameters()}
