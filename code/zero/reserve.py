"""Memory reserved in one block for what lives long (M_D in the ZeRO paper, section 6.3).

During forward, tensors that live for an instant (the insides of a block) alternate with one that
stays until backward (the block's checkpoint). An allocator puts each where it finds room, and so
the checkpoints end up scattered: when the short-lived ones are gone there is much free memory, but
in holes, and a large tensor may fit into none of them. Checkpoints that live in a block of their
own, reserved once and reused in every step, leave the rest of the memory in one piece.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable

import torch

from . import comm

ALIGNMENT = 64  # bytes: a whole cache line, and a multiple of every element size


class Arena:
    """Addresses from 0 to `size`, and who has which: the bookkeeping of a simple allocator.

    A request gets the first hole that is large enough (first fit); what is given back joins the
    holes beside it. Without a size there is no end. `top` is the highest address ever used.
    """

    def __init__(self, size: int | None = None):
        self.size = size
        self.top = 0
        self._taken: list[tuple[int, int]] = []  # (start, end), sorted
        self._returned: deque[int] = deque()  # starts that were given back since

    def take(self, nbytes: int) -> int:
        """The start of `nbytes` free bytes, from now on taken. MemoryError if no hole has them."""
        length = aligned(nbytes)
        for start, end in self.holes():
            if end is None or end - start >= length:
                bisect.insort(self._taken, (start, start + length))
                self.top = max(self.top, start + length)
                return start
        raise MemoryError(
            f"no room for {nbytes} bytes: {self.in_use} of {self.size} bytes are in use, and the "
            f"largest hole has {self.largest_hole}"
        )

    def give_back(self, start: int) -> None:
        """The range that `take` returned as `start` is free again.

        It may be called at any moment from any thread (the garbage collector does), so it only
        leaves a note, which the next other call reads.
        """
        self._returned.append(start)

    def holes(self) -> list[tuple[int, int | None]]:
        """The free ranges (start, end) in order; the last one has no end if the arena has none."""
        self._settle()
        holes, last = [], 0
        for start, end in self._taken:
            if start > last:
                holes.append((last, start))
            last = end
        if self.size is None or last < self.size:
            holes.append((last, self.size))
        return holes

    @property
    def in_use(self) -> int:
        """Bytes that are taken."""
        self._settle()
        return sum(end - start for start, end in self._taken)

    @property
    def largest_hole(self) -> int:
        """Bytes of the largest free range, in an arena that has a size."""
        return max((end - start for start, end in self.holes()), default=0)

    def _settle(self) -> None:
        while self._returned:
            self._taken.pop(bisect.bisect_left(self._taken, (self._returned.popleft(), 0)))


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to what it takes in an arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Reserve:
    """`nbytes` bytes in one block, in which checkpoints wait for their backward pass.

    The block is allocated now, on `device` (this rank's by default), and stays as long as this
    object. `zero.formulas` says how much the checkpoints of a step need.
    """

    def __init__(self, nbytes: int, device: torch.device | None = None):
        self.block = torch.empty(nbytes, dtype=torch.uint8, device=device or comm.device())
        self.arena = Arena(nbytes)

    def put(self, part: torch.Tensor) -> InReserve:
        """Copy a flat tensor into the block. MemoryError, with sizes, if it does not fit."""
        if part.device != self.block.device:
            raise ValueError(f"the reserve is on {self.block.device}, the tensor on {part.device}")
        return InReserve(self, part)


class InReserve:
    """A tensor in the reserve (see `stores.Held`): it is where it belongs all the time."""

    place: torch.Tensor | None = None

    def __init__(self, reserve: Reserve, part: torch.Tensor):
        self.arena, self.start = reserve.arena, reserve.arena.take(part.nbytes)
        # `.data` has a version counter of its own. With the block's, autograd would take a write
        # to any place for a change of all tensors in the block.
        block = reserve.block.data
        self.place = block[self.start : self.start + part.nbytes].view(part.dtype)
        self.place.copy_(part)

    def fetch(self) -> None:
        """Nothing to do."""

    def wait(self) -> torch.Tensor:
        """The tensor, a view of the block; valid until `free`."""
        return self.place

    def free(self) -> None:
        """Give its place in the block to others."""
        if self.place is not None:
            self.arena.give_back(self.start)
            self.place = None

    __del__ = free


# --- seeing fragmentation ------------------------------------------------------------------------


def replay(changes: Iterable[tuple[int, int]]) -> Arena:
    """What a first-fit allocator makes of a real run: an arena without end, after these changes.

    `changes` are (number of a tensor, its bytes from now on) in order, as `Meter.changes` lists
    them. Of the arena, `top` is the address space that the run has needed so far, and what lies
    below and is not `in_use` is lost in holes.
    """
    arena, where = Arena(), {}
    for tensor, nbytes in changes:
        if tensor in where:
            arena.give_back(where.pop(tensor))
        if nbytes:
            where[tensor] = arena.take(nbytes)
    return arena


def cuda_holes(device: torch.device | None = None) -> dict[str, int]:
    """Fragmentation as CUDA's allocator sees it, in bytes.

    "reserved" is what it holds, "allocated" what tensors use, "holes" what lies unused in blocks
    that are partly in use and so cannot serve a larger request.
    """
    stats = torch.cuda.memory_stats(device)
    return {
        "reserved": stats["reserved_bytes.all.current"],
        "allocated": stats["allocated_bytes.all.current"],
        "holes": stats["inactive_split_bytes.all.current"],
    }
