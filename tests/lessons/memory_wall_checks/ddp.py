"""Checks of `Ddp.finish_gradients`: averaged gradients in place, for real optimizers and ranks."""

from functools import cache

import pytest
import torch

from course import training
from course.checks import compare_tensors, exercise, fail, on_ranks, require, same_as, scaled
from zero.formulas import model_states, wire

from . import ranks as on_each

OPTIMIZERS = ("sgd", "adamw")
NUMEL = 174  # of training.small_model


def fp32(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@cache
def trainings(ranks: int) -> dict[str, list[training.Run]]:
    """The runs of all ranks, by optimizer; one launch."""
    found = on_ranks(on_each.train, ranks, OPTIMIZERS)
    return {name: [runs[name] for runs in found] for name in found[0]}


@exercise("zero.ddp.Ddp.finish_gradients")
def test_average():
    """owned_grad is the average: of the gradients 1, 2, 3 and 4 of four ranks it is 2.5"""
    for rank, got in reversed(list(enumerate(special_cases("average")))):
        require(
            got is not None,
            f"On rank {rank} bucket.owned_grad is None afterwards: nothing was put there.",
            "nothing-put-there",
        )
        compare_tensors(
            fp32([2.5]),
            got,
            f"owned_grad on rank {rank}",
            known=[
                scaled(4, "sum-for-mean", "summed over 4 ranks, not averaged"),
                scaled(1 / 4, "divided-twice", "divided by 4 twice"),
                same_as(fp32([1.0 + rank]), "nothing-exchanged", "that is its own gradient"),
                same_as(fp32([1.0]), "rank-0-only", "that is the gradient of rank 0"),
            ],
        )


def special_cases(name: str) -> list:
    """What each of four ranks has found in one case."""
    return [found[name] for found in _all_special_cases()]


@cache
def _all_special_cases() -> list[dict]:
    return on_ranks(on_each.special_cases, 4)


@exercise("zero.ddp.Ddp.finish_gradients")
def test_missing():
    """A parameter that some ranks have not used counts as zero there"""
    for rank, (first, second) in enumerate(special_cases("missing")):
        what = f"owned_grad on rank {rank}"
        compare_tensors(fp32([3.0]), first, f"{what}, each rank with a gradient of 3")
        compare_tensors(
            fp32([2.0]),
            second,
            f"{what}: rank 0 has a gradient of 8 in step 2, ranks 1 to 3 have none",
            known=[
                same_as(
                    fp32([(8.0 + 3 * 3.0) / 4]),
                    "stale-gradient",
                    "ranks 1 to 3 give their gradient of the step before once more",
                ),
                same_as(fp32([8.0]), "missing-not-counted", "divided by 1, not by 4"),
            ],
        )


@exercise("zero.ddp.Ddp.finish_gradients")
def test_two_buckets():
    """Every bucket is averaged: a model with parameters of two dtypes has two"""
    for rank, found in enumerate(special_cases("dtypes")):
        for dtype, got in zip((torch.float32, torch.float64), found):
            what = f"owned_grad of the {dtype} bucket on rank {rank}"
            require(got is not None, f"{what} is None.", "one-bucket-only")
            own = torch.tensor([1.0 + rank], dtype=dtype)
            known = [same_as(own, "one-bucket-only", "this bucket is not averaged")]
            compare_tensors(torch.tensor([2.5], dtype=dtype), got, what, known=known)


@exercise("zero.ddp.Ddp.finish_gradients")
def test_unused_bucket():
    """A rank without any gradient in a bucket takes part all the same: it counts as zero"""
    for rank, (_, got) in enumerate(on_ranks(on_each.unused, 2)):
        what = f"owned_grad of the second bucket on rank {rank}; rank 0's gradient is 3"
        require(got is not None, f"{what}. It is None.", "nothing-put-there")
        compare_tensors(torch.tensor([1.5], dtype=torch.float64), got, what)


@exercise("zero.ddp.Ddp.finish_gradients")
def test_group():
    """The average is over self.group, which need not be all ranks"""
    for rank, got in enumerate(special_cases("pair")):
        what = f"owned_grad on rank {rank}; gradients are 1, 2 in one pair and 3, 4 in the other"
        known = [same_as(fp32([2.5]), "whole-world", "averaged over all four ranks")]
        compare_tensors(fp32([(1.5, 3.5)[rank // 2]]), got, what, known=known)


@exercise("zero.ddp.Ddp.finish_gradients")
def test_16_bits():
    """In 16-bit training owned_grad is fp32, the dtype of the masters"""
    for rank, got in enumerate(special_cases("bf16")):
        compare_tensors(fp32([2.5]), got, f"owned_grad on rank {rank}, a model in bf16")


@exercise("zero.ddp.Ddp.finish_gradients")
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    right = training.oracle(optimizer, ranks)
    known = {}
    if optimizer == "sgd":
        rate = training.OPTIMIZERS["sgd"][1]["lr"]
        known = {
            "sum-for-mean": (
                training.oracle("sgd", ranks, lr=rate * ranks),
                f"the gradients were summed over {ranks} ranks, not averaged",
            ),
            "divided-twice": (
                training.oracle("sgd", ranks, lr=rate / ranks),
                f"the average was divided by {ranks} once more",
            ),
        }
    runs = trainings(ranks)[optimizer]
    _same_on_all_ranks(runs)
    training.compare_weights(
        right,
        runs,
        known=lambda name: [same_as(w[name], mistake, why) for mistake, (w, why) in known.items()],
    )


def _same_on_all_ranks(runs: list[training.Run]) -> None:
    for rank, run in enumerate(runs):
        for name, first in runs[0].weights.items():
            if not torch.equal(first, run.weights[name]):
                fail(
                    f"After {len(run.losses)} steps {name} is not the same on ranks 0 and {rank}: "
                    f"each rank has followed gradients of its own.\n"
                    f"rank 0  {first.flatten()[:4].tolist()} ...\n"
                    f"rank {rank}  {run.weights[name].flatten()[:4].tolist()} ...",
                    "ranks-differ",
                )


@exercise("zero.ddp.Ddp.finish_gradients")
def test_memory():
    """No second copy of the gradients is kept"""
    expected = model_states([NUMEL], 0, 2).gradients
    for rank, run in enumerate(trainings(2)["adamw"]):
        got = run.live["gradients"]
        require(
            got <= expected,
            f"Rank {rank} keeps {got} bytes of gradients for {NUMEL} parameters; {expected} are "
            f"enough. In fp32 owned_grad is bucket.grad itself, not a copy.",
            "second-copy",
        )


@exercise("zero.ddp.Ddp.finish_gradients")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes(ranks, precision):
    """Each rank sends what one all-reduce costs"""
    expected = wire([NUMEL], 0, ranks, precision)["all_reduce"]
    for rank, run in enumerate(trainings(ranks)["adamw" if precision == "fp32" else precision]):
        text = (
            f"Rank {rank} of {ranks} sends {run.sent} bytes in a step of {precision} training; one "
            f"all-reduce of bucket.grad sends {expected}."
        )
        require(run.sent <= expected, text, "too-many-bytes")
        require(run.sent == expected, text, "too-few-bytes")
