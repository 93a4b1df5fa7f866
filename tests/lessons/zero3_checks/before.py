"""The checks of `zero.stage3.Zero3.before_backward`."""

from functools import cache

import pytest

from course.checks import compare_values, exercise, fail, on_ranks, require
from zero.unit import State
from zero3_checks import passes
from zero3_checks.trainings import ALL_RANKS, cost_is_right, weights_are_right

PATH = "zero.stage3.Zero3.before_backward"
MODELS = pytest.mark.parametrize("name", list(passes.MODELS))
LAST = "3"  # of the four units of `chain`


@cache
def _seen() -> list[dict]:
    return on_ranks(passes.look_at_passes, 2)


def seen(name: str) -> list[dict]:
    return [by_name[name] for by_name in _seen()]


@exercise(PATH)
@MODELS
def test_here(name):
    """When a unit's backward begins, all units that it needs are FULL"""
    for rank, found in enumerate(seen(name)):
        if not found["missing"]:
            continue
        whose, which, state = found["missing"]
        text = f"Rank {rank}: the backward of unit {whose} begins and unit {which} is {state}."
        if whose != which:
            fail(f"{text} Unit {which} owns the weight that is tied into it.", "owner-forgotten")
        if state is State.GATHERING:
            fail(f"{text} gather() waits until it is there.", "only-started")
        fail(text, "not-gathered")


@exercise(PATH)
def test_opened():
    """A unit is open from the beginning of its backward"""
    for found in seen("chain"):
        for whose, _, opened in found["begun"]:
            text = f"The backward of unit {whose} begins, and its `open` is False."
            require(all(opened), text, "not-opened")


@exercise(PATH)
@pytest.mark.parametrize("name", ["mixed", "two_inputs", "owner_unused"])
def test_stays(name):
    """A unit stays until the gradients of all inputs are computed, also if it lends its weight"""
    why = {
        "mixed": "the gradient of its input was not computed yet, and needs a frozen weight",
        "two_inputs": "it has two inputs, of which one had no gradient yet: that needs a frozen "
        "weight. call.waiting is 2 then",
        "owner_unused": "another unit, which uses its frozen weight, had not computed the gradient "
        "of its input yet",
    }
    for found in seen(name):
        require(
            not found["early"],
            f"Unit {found['early']} was released too early: its parameters had all their "
            f"gradients, but {why[name]}. u.backward_calls must hold the call.",
            "closed-too-early",
        )


@exercise(PATH)
@MODELS
def test_all_closed(name):
    """Every unit is closed as soon as it can be, and released"""
    for found in seen(name):
        left = found["left"]
        text = f"After the backward pass the units {left} are still in memory. Only a unit that is "
        text += "open is closed: open every unit of call.unit.needs, also the owner of a tied "
        text += "weight that is frozen, whose backward never comes."
        require(not left, text, "left-in-memory")
        text = f"The units {found['left open']} were closed at the end of the pass only: they "
        text += "waited for the gradients of inputs, and have none that needs a gradient."
        require(not found["left open"], text, "waits-for-nothing")


@exercise(PATH)
def test_order():
    """The prefetcher learns the order of the backward pass"""
    for name, right in (("chain", ["3", "2", "1", "0"]), ("tied", ["4", "2", "0"])):
        owners = ["4", "0", "2", "0"], "owners-told", "0 only lends its weight to 4; tell call.unit"
        for found in seen(name):
            order = found["order"]
            text = "The prefetcher does not know a backward order: call its needed(...)."
            require(bool(order), text, "order-not-told")
            compare_values(
                right, order, f"the backward order that the prefetcher has ({name})", [owners]
            )


@exercise(PATH)
def test_prefetch():
    """While the first unit computes, the next is on its way"""
    for found in seen("chain"):
        whose, states, _ = found["begun"][0]
        text = f"When the backward of unit {whose}, the first, begins, unit 2 is {states['2']}; "
        text += "it should be GATHERING: the order is known from the pass before."
        require(states["2"] is State.GATHERING, text, "no-prefetch")
        text = "Unit 2, the next, was asked for before unit 3, which is needed now: then 3 comes "
        require(found["gathered"][-2:] == ["3", "2"], f"{text}second.", "next-before-own")


@exercise(PATH)
def test_two_at_most():
    """Never more than two units are in memory"""
    for found in seen("chain"):
        text = f"{found['most']} units of a chain had memory at one time. Start the next only if "
        require(found["most"] <= 2, f"{text}exactly one is open.", "three-at-once")


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_backward_trains(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, optimizer, ranks)


@exercise(PATH)
@ALL_RANKS
def test_backward_costs(ranks):
    """Memory and bytes are those of ZeRO-3"""
    cost_is_right(PATH, ranks)
