"""The checks of `zero.partition.keep_part`."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from activation_checks import groups, parts, trainings
from course.checks import compare_tensors, exercise, fail, on_ranks, require, same_as

PATH = "zero.partition.keep_part"


@cache
def kept() -> list[dict]:
    return on_ranks(parts.keep_everything, groups.WORLD)


def compare_part(x: Tensor, key: tuple, rank: int) -> None:
    """Fail unless `rank` has kept the right part of x in the groups of size key[0]."""
    m, r = groups.place(rank, key[0])
    got = kept()[rank]["parts"][key][0]
    what = f"the part of rank {r} of {m}, of {x.numel()} elements"
    if isinstance(got, str):
        clue = "" if m == groups.WORLD else "\nM and r are those of the group, not of the world."
        fail(f"{what}: {got}{clue}", "group-ignored" if clue else "")
    flat, expected = x.reshape(-1), groups.part_of(x, m, r)
    real = flat[r * len(expected) : (r + 1) * len(expected)]
    floor = x.numel() // m
    world = [
        same_as(
            groups.part_of(x, groups.WORLD, rank),
            "group-ignored",
            f"this is rank {rank}'s part of {groups.WORLD}: the whole world was asked. Ranks of "
            "other groups have other batches; what they keep cannot be used here",
        ),
        same_as(
            groups.part_of(x, m, min(rank, m - 1)),
            "group-ignored",
            "the rank in the world was used; what counts is the rank in the group",
        ),
    ]
    known = [
        *(world if m != groups.WORLD else []),
        same_as(flat, "kept-whole", "this is all of x; the other ranks have the rest"),
        same_as(x, "kept-whole", "this is x itself; keep 1/M of it"),
        same_as(real, "not-padded", "all parts must have one length, or no all-gather fits them"),
        same_as(
            flat[r * floor : (r + 1) * floor],
            "rounded-down",
            "numel // M: the last elements belong to nobody then. Round up",
        ),
        same_as(flat[r::m], "every-mth", "every M-th element; a rank keeps one range"),
        same_as(groups.part_of(x, m, m - 1 - r), "wrong-order", "this is another rank's part"),
    ]
    compare_tensors(expected, got, what, known=known)


@exercise(PATH)
def test_part_by_hand():
    """Seven numbers on four ranks: two for each, and a zero at the end"""
    for rank in range(groups.WORLD):
        compare_part(groups.tensor((7,)), (4, (7,), torch.float32), rank)


def is_copy(rank: int, size: int, shape: tuple[int, ...]) -> None:
    """Fail unless the part of `rank` is right, and has memory of its own and no more."""
    key = (size, shape, torch.float32)
    compare_part(groups.tensor(shape), key, rank)
    part, nbytes, alone = kept()[rank]["parts"][key]
    require(alone, f"x was changed (rank {rank}).", "x-changed")
    text = f"The part of rank {rank} has {part.nbytes} bytes, and "
    view = f"{text}it is a view of x: as long as it lives, all of x stays in memory. Copy."
    require(nbytes != -1, view, "view")
    more = f"{text}the memory behind it has {nbytes}. Copy the part alone."
    require(nbytes <= part.nbytes, more, "view")


@exercise(PATH)
def test_copy():
    """The part is a copy: nothing keeps the whole tensor in memory"""
    for rank in range(groups.WORLD):
        is_copy(rank, 4, (7, 5))
        is_copy(rank, 4, (2, 3, 4))


@exercise(PATH)
@pytest.mark.parametrize("size", groups.SIZES)
def test_part_every_size(size):
    """Groups of one to four ranks, lengths that do not divide, fewer elements than ranks, none"""
    for rank in range(groups.WORLD):
        for shape in groups.SHAPES[size]:
            compare_part(groups.tensor(shape), (size, shape, torch.float32), rank)


@exercise(PATH)
def test_part_alone():
    """A rank that is alone in its group keeps a copy as well"""
    is_copy(3, 3, (7, 5))


@exercise(PATH)
def test_across():
    """A tensor whose elements do not lie in their order: the order counts, not the memory"""
    for size in groups.SIZES:
        for rank in range(groups.WORLD):
            compare_part(groups.tensor((7, 5)).T, (size, "across"), rank)


@exercise(PATH)
def test_part_dtypes():
    """16 bits stay 16 bits, and 64 stay 64"""
    for dtype in groups.DTYPES:
        for rank in range(groups.WORLD):
            compare_part(groups.tensor((7, 5), dtype), (2, (7, 5), dtype), rank)


@exercise(PATH)
def test_part_bits():
    """What is kept is what was there, to the last bit: -0.0 too"""
    for rank, seen in enumerate(kept()):
        for size in groups.SIZES:
            compare_part(parts.ODD, (size, "odd"), rank)
            got, right = (
                seen["parts"][size, "odd"][0],
                groups.part_of(parts.ODD, *groups.place(rank, size)),
            )
            text = f"Rank {rank} keeps {got.tolist()}, it should be {right.tolist()}: elements "
            text += "must be copied, not calculated with."
            same = torch.equal(got.view(torch.int32), right.view(torch.int32))
            require(same, text, "calculated")


@exercise(PATH)
def test_silent():
    """Nothing is sent: a rank has all that it needs"""
    for rank, seen in enumerate(kept()):
        text = f"keep_part has communicated {seen['calls']} times on rank {rank}. Every rank of "
        require(seen["calls"] == 0, f"{text}the group has all of x already.", "collective")


@exercise(PATH)
@pytest.mark.parametrize("what", ["bits", "bytes"])
def test_keeps_and_trains(what):
    """Training on groups of one to four ranks, each with its part of the checkpoints"""
    (trainings.trains if what == "bits" else trainings.costs)(PATH)
