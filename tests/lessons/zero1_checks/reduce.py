"""The checks of `zero.stage1.Zero1.finish_gradients`."""

from functools import cache

import pytest
import torch
from torch import Tensor

from course.checks import compare_tensors, exercise, fail, on_ranks, require, same_as, scaled
from zero.formulas import model_states, padded, wire
from zero1_checks import ranks as on_each_rank
from zero1_checks.trainings import ALL_RANKS, NUMEL, weights_are_right

PATH = "zero.stage1.Zero1.finish_gradients"
TRAININGS = ("sgd", "adamw")


def full(ranks: int) -> Tensor:
    """All ranks' gradients of the small model, averaged, with padding."""
    flat = torch.stack([on_each_rank.gradient(rank) for rank in range(ranks)]).mean(0)
    return torch.cat([flat, torch.zeros(padded(7, ranks) - 7)])


def not_completed(expected: Tensor, got: Tensor) -> tuple[str, str] | None:
    if not got.isnan().any():
        return None
    return "not-completed", "bucket.grad was not filled: bucket.complete_gradients() does that"


def found(value: Tensor | None, what: str) -> Tensor:
    require(value is not None, f"{what} is None: the average must be left there.", "nothing-left")
    return value


@exercise(PATH)
@pytest.mark.parametrize("ranks", [2, 3])
def test_average(ranks):
    """Each rank has the average of its own range in owned_grad"""
    whole, shard = full(ranks), padded(7, ranks) // ranks
    for rank, got in enumerate(on_ranks(on_each_rank.averaged, ranks)):
        what = f"owned_grad on rank {rank} of {ranks}"
        local = torch.cat([on_each_rank.gradient(rank), torch.zeros(len(whole) - 7)])
        parts, own = whole.split(shard), local.split(shard)[rank]
        compare_tensors(
            parts[rank],
            found(got, what),
            what,
            known=[
                not_completed,
                same_as(own, "nothing-exchanged", "these are this rank's own gradients"),
                same_as(own / ranks, "nothing-exchanged", f"this rank's own, divided by {ranks}"),
                same_as(whole, "whole-average", "the average of everything; this rank owns a part"),
                scaled(ranks, "sum-for-mean", f"summed over {ranks} ranks, not averaged"),
                scaled(1 / ranks, "divided-twice", "reduce_bucket has divided already"),
                *[
                    same_as(part, "wrong-range", f"that is the range of rank {owner}")
                    for owner, part in enumerate(parts)
                    if owner != rank
                ],
            ],
        )


@cache
def reduced(name: str) -> list:
    """What each of three ranks has found in one of the special cases."""
    return [by_name[name] for by_name in _all_reduced()]


@cache
def _all_reduced() -> list[dict]:
    return on_ranks(on_each_rank.averages, 3)


@exercise(PATH)
def test_missing():
    """A rank that has no gradient for a parameter counts as zero"""
    rows = torch.zeros(3, 9)
    rows[:, :7] = torch.stack([on_each_rank.gradient(rank) for rank in range(3)])
    left = rows.clone()  # what step 1 leaves in grad: the average in the rank's own range
    for rank in range(3):
        left[rank, 3 * rank : 3 * rank + 3] = full(3)[3 * rank : 3 * rank + 3]
    right, stale = rows.clone(), rows.clone()
    right[1:, 4:] = 0.0  # `b` has a gradient on rank 0 only
    stale[1:, 4:7] = left[1:, 4:7]
    right, stale = right.mean(0), stale.mean(0)
    for rank, (first, second) in enumerate(reduced("missing")):
        here = slice(3 * rank, 3 * rank + 3)
        what = f"owned_grad on rank {rank}"
        first = found(first, what)
        compare_tensors(full(3)[here], first, f"{what}, step 1", known=[not_completed])
        compare_tensors(
            right[here],
            found(second, what),
            f"{what}, step 2, where only rank 0 has a gradient for b",
            known=[
                same_as(stale[here], "stale-gradient", "ranks 1 and 2 give what was there before")
            ],
        )


@exercise(PATH)
def test_two_buckets():
    """Every bucket is averaged: parameters of two dtypes need two"""
    for rank, got in enumerate(reduced("dtypes")):
        for dtype, part in zip((torch.float32, torch.float64), got):
            what = f"owned_grad of the {dtype} bucket on rank {rank}"
            require(part is not None, f"{what} is None.", "one-bucket-only")
        both = torch.cat([got[0].double(), got[1]])
        flat = full(3)[:7]
        a, b = torch.cat([flat[:4], torch.zeros(2)]).split(2)[rank], flat[4 + rank : 5 + rank]
        compare_tensors(torch.cat([a, b]).double(), both, f"owned_grad of two buckets, rank {rank}")


@exercise(PATH)
def test_unused_bucket():
    """A rank without any gradient in a bucket takes part all the same: it counts as zero"""
    parts = torch.tensor([2.5, 3.0, 3.5, 0.0], dtype=torch.float64).split(2)
    for rank, (_, got) in enumerate(on_ranks(on_each_rank.unused, 2)):
        what = f"owned_grad of an fp64 bucket on rank {rank}; rank 1 has no gradient in it"
        compare_tensors(parts[rank], found(got, what), what, known=[not_completed])


@exercise(PATH)
def test_bytes():
    """It sends what a reduce-scatter sends: half of an all-reduce"""
    expected = wire([NUMEL], 1, 3)["reduce_scatter"]
    for rank, cost in enumerate(reduced("cost")):
        got = cost["sent"]
        text = f"Rank {rank} of 3 sends {got} bytes, a reduce-scatter sends {expected}."
        if got == wire([NUMEL], 0, 3)["all_reduce"]:
            fail(f"{text} That is an all-reduce: most of what arrives is not needed.", "all-reduce")
        require(got == expected, text, "bytes")


@exercise(PATH)
def test_memory():
    """In fp32 owned_grad is the rank's range of grad, and no memory of its own"""
    expected = model_states([NUMEL], 1, 3).gradients
    for rank, cost in enumerate(reduced("cost")):
        got = cost["gradients"]
        text = f"Rank {rank} keeps {got} bytes of gradients, where grad has {expected}: "
        require(got <= expected, f"{text}owned_grad is a copy.", "second-copy")
        require(got == expected, f"{text}some are gone; stage 1 keeps them.", "gradients-gone")


@exercise(PATH)
def test_16_bits():
    """16-bit gradients are summed into an fp32 owned_grad"""
    whole = torch.cat([torch.full((7,), 259.0 / 3), torch.zeros(2)])
    rounded = "the average was rounded to 16 bits on its way"
    for rank, got in enumerate(reduced("bf16")):
        what = f"owned_grad on rank {rank}; a bf16 model, gradients 256, 1 and 2 on the three ranks"
        text = f"{what} is {found(got, what).dtype}, it should be fp32."
        require(got.dtype == torch.float32, text, "16-bit-average")
        right = whole[3 * rank : 3 * rank + 3]
        known = [same_as(right.bfloat16().float(), "16-bit-average", rounded)]
        compare_tensors(right, got, what, known=known)


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", TRAININGS)
def test_reduced_trains(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, TRAININGS, optimizer, ranks)
