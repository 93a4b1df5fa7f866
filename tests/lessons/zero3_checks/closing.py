"""The checks of `zero.stage3.Zero3.close`."""

from functools import cache

import pytest
import torch
from torch import Tensor

from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
    scaled,
)
from zero.formulas import padded, wire
from zero.unit import State
from zero3_checks import units
from zero3_checks.trainings import ALL_RANKS, cost_is_right, weights_are_right

PATH = "zero.stage3.Zero3.close"
RANKS = units.RANKS


def average(last_of_b: bool = True) -> Tensor:
    """All ranks' gradients of `a` and `b`, averaged, with padding; or `b` of rank 0 only."""
    rows = torch.stack([units.gradient(rank) for rank in range(RANKS)])
    if not last_of_b:
        rows[1:, 5:] = 0.0
    return torch.cat([rows.mean(0), torch.zeros(padded(7, RANKS) - 7)])


@cache
def closed() -> list[dict]:
    return on_ranks(units.close_and_look, RANKS)


@cache
def closed_again() -> list[dict]:
    return on_ranks(units.close_again, RANKS)


@exercise(PATH)
def test_reduces():
    """Every rank gets its part of the average of the unit's gradients"""
    whole = average()
    for rank, seen in enumerate(closed()):
        got = seen["averages"]["a"]
        what = f"owned_grad of the fp32 bucket on rank {rank}"
        require(got is not None, f"{what} is None: nothing was reduced.", "not-reduced")
        own = torch.cat([units.gradient(rank), torch.zeros(2)]).split(3)[rank]
        known = [
            same_as(own, "nothing-exchanged", "these are this rank's own gradients"),
            same_as(whole, "whole-average", "the whole average; this rank owns a part"),
            scaled(2, "reduced-twice", "the average has come twice"),
            scaled(RANKS, "sum-for-mean", "summed, not averaged"),
        ]
        compare_tensors(whole.split(3)[rank], got, what, known=known)


@exercise(PATH)
def test_every_bucket():
    """Every trainable bucket of the unit is reduced; here one is fp32 and one fp64"""
    for rank, seen in enumerate(closed()):
        got = seen["averages"]["wide"]
        what = f"owned_grad of the fp64 bucket on rank {rank}"
        require(got is not None, f"{what} is None: one bucket was left out.", "one-bucket-only")
        expected = torch.cat([average()[:4], torch.zeros(2)]).double().split(2)[rank]
        compare_tensors(expected, got, what)


@exercise(PATH)
def test_shut():
    """Afterwards the unit is not open, and no call waits in it"""
    for seen in closed():
        require(not seen["open"], "unit.open is still True.", "still-open")
        text = f"unit.backward_calls still holds {seen['calls']} call: it would keep the unit in "
        require(not seen["calls"], f"{text}memory in the next pass.", "calls-left")


@exercise(PATH)
def test_lets_go():
    """The unit's parameters are released"""
    for rank, seen in enumerate(closed()):
        text = f"The unit is {seen['state']} on rank {rank} after close; it should be SHARDED. "
        text += "self._release(unit) does nothing as long as unit.open is True."
        require(seen["state"] is State.SHARDED, text, "not-released")


@exercise(PATH)
def test_still_needed():
    """A unit that somebody still needs stays: a forward pass that runs, or full_params"""
    for seen in closed_again():
        for key, who in (("running", "a forward pass"), ("pinned", "full_params")):
            text = f"The unit was released although {who} needs it. self._release asks first."
            require(seen[key] is State.FULL, text, "released-anyway")


@exercise(PATH)
def test_does_not_wait():
    """The last bucket is still on its way: the next unit computes meanwhile"""
    for seen in closed():
        if seen["in flight"] is False:
            fail("Nothing is on its way after close: it has waited for the end.", "waits")
        compare_values(["wide"], seen["in flight"], "the bucket on its way (parameter names)")


@exercise(PATH)
def test_bytes_reduced():
    """It sends what a reduce-scatter of the unit's gradients sends"""
    expected = wire([7], 1, RANKS)["reduce_scatter"] + 2 * wire([4], 1, RANKS)["reduce_scatter"]
    for rank, seen in enumerate(closed()):
        text = f"Rank {rank} of {RANKS} sends {seen['sent']} bytes, expected {expected}."
        require(seen["sent"] == expected, text, "bytes")
        require(not any(seen["whole"]), "Whole gradients are still in memory.", "whole-gradients")


@exercise(PATH)
def test_two_micro_batches():
    """The average of a second micro-batch is added; a missing gradient counts as zero"""
    expected = average() + average(last_of_b=False)
    for rank, seen in enumerate(closed_again()):
        what = f"owned_grad on rank {rank} after two micro-batches"
        compare_tensors(expected.split(3)[rank], seen["sum"], what)


@exercise(PATH)
def test_without_gradients():
    """A bucket that has no gradient on this rank is sent all the same"""
    for rank, seen in enumerate(closed_again()):
        if ["wide"] not in seen["started"]:
            fail(
                f"On rank {rank} the fp64 bucket has no gradient in this step (its grad is None), "
                "and close has not started its reduce-scatter. Another rank may have one, and "
                "would wait for ever: all ranks start all buckets. flight.start sends zeros.",
                "skipped-without-gradient",
            )
        compare_values([["a", "b"], ["wide"]], seen["started"], "the buckets started (names)")


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_closes_train(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, optimizer, ranks)


@exercise(PATH)
@ALL_RANKS
def test_closes_cost(ranks):
    """Memory and bytes are those of ZeRO-3"""
    cost_is_right(PATH, ranks)
