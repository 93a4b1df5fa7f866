"""From the slices of N ranks to those of M.

A checkpoint knows a parameter by its name and its elements, not by ranks and buffers: each saved
slice says which elements [offset, offset + length) of the flattened parameter it holds. So a rank
that needs elements [a, b), whatever the number of ranks, the stage or the size of the buckets,
takes them from the slices that overlap with [a, b):

    saved by 3 ranks    |------ 0 ------|------ 1 ------|--- 2 ---|
    wanted by rank 1 of 2                      |------------------|
                                               |-- 1 ---|--- 2 ---|    two copies

Padding is in no slice, so it can be neither kept nor stripped wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Copy:
    """Elements [start, start + length) of saved slice number `source` go to `target` onwards."""

    source: int
    start: int
    target: int
    length: int


def copies(offset: int, length: int, saved: Sequence[tuple[int, int]]) -> list[Copy]:
    """How to put elements [offset, offset + length) of a parameter together from saved slices.

    `saved` are the slices' (offset, length) in elements of the flattened parameter, in any order;
    together they hold every element once, and a slice may be empty. The result has one copy for
    each slice that holds some of what is wanted, in any order: `source` is the slice's place in
    `saved`, `start` counts from the beginning of the slice and `target` from the beginning of what
    is wanted. `length` may be 0: then there is nothing to copy.
    """
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first - begin, first - offset, last - first))
    return plan
