"""The checks of `zero.stage1.Zero1.publish`."""

from functools import cache

import pytest
import torch
from torch import Tensor

from course.checks import compare_tensors, exercise, on_ranks, require, same_as, scaled
from zero.formulas import wire
from zero1_checks import ranks as on_each_rank
from zero1_checks.trainings import ALL_RANKS, NUMEL, weights_are_right

PATH = "zero.stage1.Zero1.publish"
TRAININGS = ("sgd", "adamw")
RANGES = torch.cat([on_each_rank.updated(rank) for rank in range(3)])[:7]


def flat_of(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in weights.values()])


def only(rank: int) -> Tensor:
    """What a rank has if it keeps its range to itself; everything started as zero."""
    alone = torch.zeros(9)
    alone[3 * rank : 3 * rank + 3] = on_each_rank.updated(rank)
    return alone[:7]


@exercise(PATH)
def test_all_ranges():
    """Afterwards every rank has the ranges of all ranks"""
    for rank, weights in reversed(list(enumerate(on_ranks(on_each_rank.published, 3)))):
        compare_tensors(
            RANGES,
            flat_of(weights),
            f"the parameters on rank {rank}; rank r has updated its range to 10 r, 10 r + 1, ...",
            known=[
                same_as(
                    only(rank),
                    "nothing-published",
                    "only its own range is new: the others' have not come, or were not waited for",
                ),
                same_as(only(0), "rank-0-only", "only rank 0's range has come"),
                scaled(1 / 3, "averaged", "ranges are gathered, not averaged"),
            ],
        )


@cache
def publishings(name: str) -> list:
    """What each of three ranks has found in one of the special cases."""
    return [by_name[name] for by_name in _all_publishings()]


@cache
def _all_publishings() -> list[dict]:
    return on_ranks(on_each_rank.publishings, 3)


def not_all_there(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    """Recognise a publish that did not wait: every number is right, or has not arrived."""
    if bool(((got == expected) | (got == 0)).all()):
        return "no-wait", "not everything is there yet: wait for the Work of each all-gather"
    return None


@exercise(PATH)
def test_waits():
    """When it returns, everything has arrived, even if another rank comes late"""
    for rank, weights in enumerate(publishings("late")):
        compare_tensors(
            RANGES,
            flat_of(weights),
            f"the parameters on rank {rank} just after publish; rank 0 came late",
            known=[not_all_there],
        )
    for rank, seen in enumerate(publishings("dtypes")):
        text = f"Rank {rank} has started {len(seen['waited'])} all-gathers, for two buckets, and "
        text += (
            f"has waited for {sum(seen['waited'])} of them. Wait for each: they end in any order."
        )
        require(all(seen["waited"]), text, "no-wait")


@exercise(PATH)
def test_group():
    """The ranges come from the ranks of self.group, which need not be all ranks"""
    for rank, weights in enumerate(on_ranks(on_each_rank.published_in_pairs, 4)):
        first = rank // 2 * 2
        world = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 4.0])
        compare_tensors(
            torch.tensor([first + 1.0] * 4 + [first + 2.0] * 3),
            flat_of(weights),
            f"the parameters on rank {rank}; ranks 0 and 1 train one model, 2 and 3 another",
            known=[same_as(world, "whole-world", "gathered from all four ranks")],
        )


@exercise(PATH)
def test_every_bucket():
    """Every bucket is published: parameters of two dtypes need two"""
    for rank, seen in enumerate(publishings("dtypes")):
        for name, tensor in seen["weights"].items():
            what = f"{name} on rank {rank}; every rank has added 1 to its range"
            one = (tensor == 0).any()
            require(not one, f"{what}.\ngot  {tensor.tolist()}", "one-bucket-only")
            compare_tensors(torch.ones_like(tensor), tensor, what)


@exercise(PATH)
def test_rounding():
    """In 16-bit training the parameters become the rounded masters, and these stay as they are"""
    for rank, seen in enumerate(publishings("bf16")):
        right = (RANGES + 0.001).bfloat16()
        what = f"the bf16 parameters on rank {rank}"
        old = same_as(
            torch.zeros(7).bfloat16(), "masters-forgotten", "the masters have not come in"
        )
        for name, tensor in seen["weights"].items():
            require(tensor.dtype == torch.bfloat16, f"{name} is {tensor.dtype}.", "not-16-bit")
        compare_tensors(right, flat_of(seen["weights"]), what, known=[old])
        master = on_each_rank.updated(rank) + 0.001
        rounded = same_as(master.bfloat16().float(), "masters-rounded", "rounded to 16 bits")
        compare_tensors(master, seen["master"], f"the master of rank {rank}", known=[rounded])


@exercise(PATH)
def test_views_stay():
    """The model's parameters stay views of bucket.flat"""
    for rank, cost in enumerate(publishings("cost")):
        text = f"On rank {rank} parameters have memory of their own now; gather into bucket.flat."
        require(cost["views"], text, "not-in-place")


@exercise(PATH)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_published(precision):
    """It sends what an all-gather of the parameters sends"""
    expected = wire([NUMEL], 1, 3, precision)["all_gather"]
    for rank, cost in enumerate(publishings("cost")):
        got = cost[precision]
        text = f"{precision}: rank {rank} of 3 sends {got} bytes, an all-gather sends {expected}."
        require(got <= expected, f"{text} {_too_many(got, expected)}", "too-many-bytes")
        require(got == expected, text, "bytes")


def _too_many(got: int, expected: int) -> str:
    return "Twice as many: an all-reduce?" if got == 2 * expected else "Send each range once."


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", TRAININGS)
def test_published_trains(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, TRAININGS, optimizer, ranks)
