"""A unit of ZeRO-3: the parameters that are gathered together, and released together.

A unit is in one of three states, and each has its price in memory on this rank:

    SHARDED     only the rank's shards: 1/N of the unit
    GATHERING   the full buffer is allocated and being filled: 1/N and the whole
    FULL        as GATHERING, and the parameters can be used

`start_gather` leads from the first to the second, `gather` to the third, `release` back to the
first. Releasing frees the *storage* of the flat buffer; the buffer, the parameters that view it
and whatever autograd has saved of them stay, as views of an empty storage. The next `gather`
allocates the same storage again, and all of them are valid again. Dropping a reference would not
do: autograd's references would keep the full weights alive from forward to backward.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import torch
from torch import nn

from . import comm
from .bucket import Bucket
from .nested import take_apart, tensors_in
from .offload import Offload
from .precision import Precision
from .released import mark_present, mark_released


class State(enum.Enum):
    """What is in memory of a unit on this rank."""

    SHARDED = "sharded"
    GATHERING = "gathering"
    FULL = "full"


class Unit:
    """The parameters of one part of the model, in one bucket for each dtype and trainability.

    `module` is the part of the model, `name` its name. `needs` are the units whose parameters the
    module's forward uses: this one, and the owners of weights that are tied into it. `step` gives
    the number of the step, which the messages about a gather name.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        named: list[tuple[str, nn.Parameter]],
        group: comm.Group,
        precision: Precision,
        offload: Offload,
        step: Callable[[], int],
    ):
        self.name, self.module, self.group, self.step = name, module, group, step
        kinds: dict[tuple, list[tuple[str, nn.Parameter]]] = {}
        for n, p in named:
            kinds.setdefault((p.dtype, p.requires_grad), []).append((n, p))
        self.buckets = [
            Bucket(k, group, precision, resident=False, offload=offload) for k in kinds.values()
        ]
        self.trainable = [b for b in self.buckets if b.trainable]
        self.frozen = [b for b in self.buckets if not b.trainable]
        self.needs: list[Unit] = [self]
        self.running = 0  # forward passes that use this unit at the moment
        self.backward_calls: set[object] = set()  # calls whose backward has begun and is not over
        self.open = False  # has the backward pass reached this unit, and not closed it yet?
        self.state = State.FULL
        self.works: list[comm.Work] = []  # all-gathers on their way
        self.release()

    @property
    def missing(self) -> bool:
        """Does a trainable parameter still wait for its gradient in this backward pass?"""
        return any(b.missing for b in self.trainable)

    @property
    def shown(self) -> list[Bucket]:
        """Buckets whose memory cannot be freed, because NumPy or another process sees it.

        torch then never resizes the storage again, even when the array is long gone.
        """
        return [b for b in self.buckets if not b.flat.untyped_storage().resizable()]

    def holds(self, t: torch.Tensor) -> bool:
        """Is `t` one of the unit's parameters, or a view of one?"""
        if t.layout is not torch.strided or type(t) not in (torch.Tensor, nn.Parameter):
            return False
        start = t.untyped_storage().data_ptr()
        return any(b.flat.untyped_storage().data_ptr() == start != 0 for b in self.buckets)

    def copy_views(self, output: object) -> object:
        """The module's output, with copies in place of parameters and views of parameters.

        A module may return a part of a weight (a table of positions, say), whose memory is about
        to be freed. Raises RuntimeError if it lies in a container that cannot be rebuilt.
        """

        def held(t: torch.Tensor) -> bool:
            return any(u.holds(t) for u in self.needs)

        if not any(held(t) for t in tensors_in(output)):
            return output
        tensors, rebuild = take_apart(output)
        output = rebuild([t.clone() if held(t) else t for t in tensors])
        if any(held(t) for t in tensors_in(output)):
            raise RuntimeError(
                f"{self.name} returns a view of its parameters, which ZeRO-3 releases now, inside "
                f"a {type(output).__name__}; return a copy of it (.clone())"
            )
        return output

    def start_gather(self) -> None:
        """Begin to fill the full buffers; the unit is then GATHERING. Collective.

        Does nothing unless the unit is SHARDED. For every bucket `b` in `self.buckets`, in order:

        * allocate the storage of `b.flat` [padded_numel] again: `b.flat.untyped_storage()` has a
          method `resize_(bytes)`. The parameters view this storage, so `b.flat` stays the tensor
          that it is;
        * copy `b.shard` [padded_numel / N], this rank's part, to its place: `b.owned(b.flat)` is a
          view of that place;
        * start `comm.all_gather(b.flat, group=self.group, async_op=True)`, and append the Work
          that it returns to `self.works`. Wait for none of them: `gather` does.
        """
        if self.state is not State.SHARDED:
            return
        self.state = State.GATHERING
        what = f"parameters of {self.name}, step {self.step()}"
        for b in self.buckets:
            b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
            b.owned(b.flat).copy_(b.shard)
            self.works.append(comm.all_gather(b.flat, group=self.group, name=what, async_op=True))

    def gather(self) -> None:
        """Make the parameters usable; when it returns the unit is FULL. Collective."""
        self.start_gather()
        if self.state is State.GATHERING:
            for work in self.works:
                work.wait()
            self.works = []
            for b in self.buckets:
                b.offload.release(b.shard)
                for p in b.params:
                    mark_present(p)
            self.state = State.FULL

    def release(self) -> None:
        """Free the full buffers; afterwards the unit is SHARDED. Not collective.

        If the unit is GATHERING, data is on its way into the buffers: call `self.gather()` first,
        which waits for it (a SHARDED unit it would gather, which takes all ranks). Then for every
        bucket `b` in `self.buckets`:

        * give the memory of `b.flat` back, by resizing its storage to 0 bytes. `b.flat` and the
          parameters, which view it, stay the tensors that they are;
        * call `mark_released(p, name)` for every parameter: `b.params` and `b.names` are lists,
          one beside the other. From then on the parameter refuses to be read.

        Nothing else changes: `b.shard` is always up to date, and gradients stay where they are.
        """
        if self.state is State.GATHERING:
            self.gather()  # data that is on its way must not arrive in freed memory
        for b in self.buckets:
            b.flat.untyped_storage().resize_(0)
            for name, p in zip(b.names, b.params, strict=True):
                mark_released(p, name)
        self.state = State.SHARDED
