"""The checks of `zero.unit.Unit.release`."""

from functools import cache

import pytest
import torch

from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    on_ranks,
    require,
    same_as,
)
from zero.unit import State
from zero3_checks import units
from zero3_checks.gathering import padded_whole
from zero3_checks.trainings import ALL_RANKS, cost_is_right, weights_are_right

PATH = "zero.unit.Unit.release"
SHAPES = {"a": (2, 3), "b": (7,), "frozen": (4,)}


@cache
def released() -> list[dict]:
    return on_ranks(units.release_and_look, units.RANKS)


@cache
def on_its_way() -> list[dict]:
    return on_ranks(units.release_on_its_way, units.RANKS)


@exercise(PATH)
def test_frees():
    """The memory of every bucket is free, although somebody still holds views of it"""
    for rank, seen in enumerate(released()):
        text = "b.shard was replaced. It is memory of its own and always up to date: there is "
        require(not seen["shard replaced"], f"{text}nothing to save in it.", "shard-replaced")
        text = "The storage of b.shard was freed: nothing is left of the parameters then."
        require(not seen["shard freed"], text, "shard-freed")
        left = seen["left"]
        text = f"The old storages of the two buckets still have {left} bytes on rank {rank}. "
        if left[0] and left[1]:
            if not all(seen["same"]):
                text += "b.flat is another tensor now; autograd still holds the old one."
                fail(text, "reference-dropped")
            fail(text, "not-freed")
        require(not any(left), f"{text}Every bucket of self.buckets counts.", "bucket-left-out")


@exercise(PATH)
def test_tensors_stay():
    """b.flat and the parameters stay the tensors that they are, and so do the shards"""
    for rank, seen in enumerate(released()):
        require(all(seen["same"]), f"b.flat is another tensor now (rank {rank}).", "new-buffer")
        compare_values(SHAPES, seen["shapes"], f"the parameters' shapes on rank {rank}")
        for name, shard in seen["shards"].items():
            right = padded_whole(name).split(shard.numel())[rank]
            zeros = same_as(right * 0, "shard-lost", "the shard is all that is left; keep it")
            text = "b.flat was written into it. b.shard is always up to date, and b.flat may be old"
            written = same_as(torch.full_like(right, -1.0), "shard-written", text)
            what = f"b.shard of the bucket of {name} on rank {rank}"
            compare_tensors(right, shard, what, known=[zeros, written])
        require(seen["gradient kept"], "p.grad is gone; only parameters are released.", "grad-lost")


@exercise(PATH)
def test_marks():
    """Every parameter refuses to be read from now on, by its own name"""
    for seen in released():
        for name, (marked, its_name) in seen["marks"].items():
            text = f"The parameter {name} is not marked as released: to use it would read freed "
            require(marked, f"{text}memory. Call mark_released(p, name).", "not-marked")
            text = f"The parameter {name} says that its name is {its_name!r}."
            require(its_name == name, text, "wrong-name")


@exercise(PATH)
def test_state():
    """Afterwards the unit is SHARDED"""
    for seen in released():
        compare_values(State.SHARDED, seen["state"], "self.state after release")


@exercise(PATH)
def test_alone():
    """Releasing sends nothing: a rank may do it alone, and twice"""
    for key, what in (("calls", "release"), ("calls again", "the second release")):
        for seen in released():
            text = f"{what} has made {seen[key]} communication calls."
            again = (
                "A unit that is SHARDED was released once more, which must do no harm. b.flat has "
            )
            again += "no bytes then, so do not read it; b.shard is always up to date.\n"
            require(not seen["error again"], f"{again}{seen['error again']}", "twice")
            require(seen[key] == 0, f"{text} Only a unit that is GATHERING waits.", "collective")


@exercise(PATH)
def test_waits():
    """Data that is on its way arrives before the memory is freed"""
    for seen in on_its_way():
        require(
            not seen["early"],
            "The unit was GATHERING, and its memory was freed before the data had come: it would "
            "be written into memory that belongs to somebody else by then. Wait first.",
            "no-wait",
        )
        text = "The unit was GATHERING, and nothing was freed: release must leave it SHARDED."
        require(seen["freed"], text, "not-released")
        text = f"self.works still holds {seen['works']} works that are done. self.gather() waits "
        require(not seen["works"], f"{text}for them and empties it.", "works-left")
        compare_values(State.SHARDED, seen["state"], "self.state after release")


@exercise(PATH)
@pytest.mark.parametrize("name", ["a", "frozen"])
def test_again(name):
    """A unit released on its way can be gathered again"""
    for rank, seen in enumerate(on_its_way()):
        compare_tensors(padded_whole(name), seen["values"][name], f"b.flat on rank {rank}")


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_releases_train(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, optimizer, ranks)


@exercise(PATH)
@ALL_RANKS
def test_releases_cost(ranks):
    """Memory and bytes are those of ZeRO-3"""
    cost_is_right(PATH, ranks)
