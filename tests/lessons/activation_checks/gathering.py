"""The checks of `zero.partition.gather_parts`."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from activation_checks import groups, parts, trainings
from course.checks import compare_tensors, exercise, fail, on_ranks, require, same_as, show

PATH = "zero.partition.gather_parts"


@cache
def gathered() -> list[dict]:
    return on_ranks(parts.gather_everything, groups.WORLD)


def compare_whole(x: Tensor, key: tuple, rank: int) -> None:
    """Fail unless `rank` has got x from the parts, in the groups of size key[0]."""
    m, r = groups.place(rank, key[0])
    got = gathered()[rank][key][0] if key in gathered()[rank] else "an error before"
    what = f"{x.numel()} elements from the parts of {m} ranks, on rank {r} of them"
    if isinstance(got, str):
        text = f"{what}: {got}. With async_op=True a Work comes back: call its wait(), or leave "
        require(got != parts.NO_WAIT, f"{text}async_op out.", "no-wait")
        padded = m * -(-x.numel() // m)
        text = f"{what}: {got}\nThe parts together have {padded} elements: the zeros at the end "
        text += "are no part of x. Cut them off before you give it its shape."
        left = padded > x.numel() and f"invalid for input of size {padded}" in got
        require(not left, text, "padding-left")
        clue = "" if m == groups.WORLD else "\nM and r are those of the group, not of the world."
        fail(f"{what}: {got}{clue}", "group-ignored" if clue else "")
    own = _alone(x, m, r, "own-part", "only this rank's own part is there; gather the others'")
    first = _alone(
        x, m, 0, "not-in-place", "only rank 0's part came. Range r must hold rank r's own part"
    )
    known = [
        _unwritten,
        first if gathered()[rank][key][1] else own,
        _in_reverse(x, m),
        _padding_left(x, m),
    ]
    compare_tensors(x, got, what, known=known)


def _unwritten(expected: Tensor, got: Tensor):
    """Recognise memory that nobody has filled (here it holds nan)."""
    text = "nan stands where nobody has put a part. Before the all-gather, range r must hold this "
    text += "rank's own part, and r is its rank in the group"
    found = got.is_floating_point() and got.isnan().any() and not expected.isnan().any()
    return ("not-in-place", text) if found else None


def _alone(x: Tensor, m: int, r: int, mistake: str, sentence: str):
    """Recognise the part of rank r among zeros."""
    length = -(-x.numel() // m)
    wrong = x.new_zeros(m * length)
    wrong[r * length : (r + 1) * length] = groups.part_of(x, m, r)
    return same_as(wrong[: x.numel()].view(x.shape), mistake, sentence)


def _in_reverse(x: Tensor, m: int):
    def recognise(expected, got):
        flipped = [groups.part_of(x, m, r) for r in reversed(range(m))]
        wrong = torch.cat(flipped)[: x.numel()].view(x.shape)
        found = got.shape == wrong.shape and torch.equal(got, wrong)
        return ("wrong-order", "the parts come in reverse order") if found and m > 1 else None

    return recognise


def _padding_left(x: Tensor, m: int):
    def recognise(expected, got):
        padded = m * -(-x.numel() // m)
        found = got.numel() == padded > x.numel()
        return ("padding-left", "the zeros at the end are no part of x") if found else None

    return recognise


@exercise(PATH)
def test_whole_by_hand():
    """Seven numbers from the parts of four ranks"""
    for rank in range(groups.WORLD):
        compare_whole(groups.tensor((7,)), (4, (7,), torch.float32), rank)


@exercise(PATH)
@pytest.mark.parametrize("size", groups.SIZES)
def test_whole_every_size(size):
    """Groups of one to four ranks, every shape, lengths that do not divide"""
    for rank in range(groups.WORLD):
        for shape in groups.SHAPES[size]:
            compare_whole(groups.tensor(shape), (size, shape, torch.float32), rank)


@exercise(PATH)
def test_bytes():
    """A rank sends its part once to each other rank of the group, and no more"""
    for rank, seen in enumerate(gathered()):
        for size in groups.SIZES:
            m, _ = groups.place(rank, size)
            _, sent, part, alone, _ = seen[size, (7, 5), torch.float32]
            require(alone, f"The part itself was changed (rank {rank}).", "part-changed")
            text = f"Rank {rank} in a group of {m} has sent {sent} bytes; its part has {part}, and "
            text += f"there are {m - 1} others: {part * (m - 1)}."
            double = f"{text} An all-reduce sends twice as much: it also adds."
            require(m == 1 or sent != 2 * part * (m - 1), double, "all-reduce")
            require(sent == part * (m - 1), text, "bytes")


@exercise(PATH)
def test_own_memory():
    """What comes back has memory of its own, also on a rank that is alone in its group"""
    for rank, seen in enumerate(gathered()):
        for size in groups.SIZES:
            own = seen[size, (7, 5), torch.float32][4]
            text = f"Rank {rank}, in a group of {groups.place(rank, size)[0]}, gets a view of its "
            text += "part. The part is freed afterwards, and its memory used for other things."
            require(own, text, "view")


@exercise(PATH)
def test_whole_dtypes():
    """16 bits stay 16 bits, and 64 stay 64"""
    for dtype in groups.DTYPES:
        for rank in range(groups.WORLD):
            compare_whole(groups.tensor((7, 5), dtype), (3, (7, 5), dtype), rank)
            m, _ = groups.place(rank, 3)
            _, sent, part, *_ = gathered()[rank][3, (7, 5), dtype]
            text = f"A part in {dtype} has {part} bytes; {sent} were sent to {m - 1} others. It "
            require(sent == part * (m - 1), f"{text}must travel in its own dtype.", "sent-in-fp32")


@exercise(PATH)
def test_bits():
    """What comes back is what was there, to the last bit: -0.0 and infinities too"""
    for rank, seen in enumerate(gathered()):
        for size in groups.SIZES:
            got = seen[size, "odd"][0]
            same = torch.equal(got.view(torch.int32), parts.ODD.view(torch.int32))
            text = f"{got.tolist()} on rank {rank}, from {parts.ODD.tolist()}"
            require(same, f"{text}: parts must be moved, not calculated with.", "calculated")


@exercise(PATH)
def test_data_parallel():
    """Ranks with different batches are told so, before anything wrong is computed"""
    for rank, seen in enumerate(gathered()):
        error, got, right = seen["different"]
        if "equal on all ranks" not in error:  # what our names say
            fail(
                f"Four data-parallel ranks, whose inputs differ, have divided a checkpoint, and "
                f"nobody noticed. Rank {rank}'s gradient:\n"
                f"expected  {show(right)}\ngot       {show(got)}\n"
                f"Give `name` to the collective: it holds a sum of all elements, and gloo ranks "
                f"compare their names.",
                "name-dropped",
            )


@exercise(PATH)
@pytest.mark.parametrize("what", ["bits", "bytes"])
def test_gathers_and_trains(what):
    """Training on groups of one to four ranks, each with its part of the checkpoints"""
    (trainings.trains if what == "bits" else trainings.costs)(PATH)
