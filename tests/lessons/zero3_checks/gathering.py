"""The checks of `zero.unit.Unit.start_gather`."""

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
)
from zero.formulas import padded, wire
from zero.unit import State
from zero3_checks import units
from zero3_checks.trainings import ALL_RANKS, cost_is_right, weights_are_right

PATH = "zero.unit.Unit.start_gather"
RANKS = units.RANKS
BOTH = pytest.mark.parametrize("precision", ["fp32", "bf16"])


def padded_whole(name: str, ranks: int = RANKS) -> Tensor:
    whole = units.WHOLE[name]
    return torch.cat([whole, torch.zeros(padded(len(whole), ranks) - len(whole))])


@cache
def prepared() -> list[dict]:
    """On memory that is there already."""
    return on_ranks(units.start_on_prepared_memory, RANKS)


@cache
def started() -> list[dict]:
    return on_ranks(units.start_and_look, RANKS)


@exercise(PATH)
@BOTH
def test_allocates(precision):
    """The storage of every b.flat gets its memory back: elements times bytes of one"""
    for rank, by_precision in enumerate(prepared()):
        seen = by_precision[precision]
        asked, sizes, numel = seen["asked"], seen["sizes"], seen["numel"]
        text = f"The unit has two buckets, {precision}, flat buffers of {numel} elements.\n"
        text += f"expected  storages resized to {sizes} bytes\ngot       {asked} (rank {rank})"
        if not seen["same"]:
            fail(
                "b.flat or a parameter is another tensor than before: what autograd has saved "
                "views the old storage. Resize the storage that is there.",
                "new-buffer",
            )
        if asked == [None, None]:
            fail(f"{text}\nNo storage was resized.", "not-allocated")
        if None in asked:
            fail(f"{text}\nA bucket was left out.", "bucket-left-out")
        if asked == numel:
            fail(f"{text}\nThat is the number of elements.", "size-in-elements")
        if precision == "bf16" and asked == [4 * n for n in numel]:
            fail(f"{text}\nAn element has b.flat.element_size() bytes.", "always-fp32")
        require(asked == sizes, text, "wrong-size")


@exercise(PATH)
@BOTH
@pytest.mark.parametrize("name", ["a", "frozen"])
def test_values(name, precision):
    """When the works are done, every rank has the whole bucket"""
    whole = padded_whole(name)
    nothing = torch.full_like(whole, float("nan"))
    shards = whole.split(len(whole) // RANKS)
    flats = [by_precision[precision]["flat"][name] for by_precision in prepared()]
    for rank, got in enumerate(flats):
        own = got.split(len(shards[0]))[rank]
        text = (
            f"b.flat of {name} on rank {rank}: its own place is still empty.\ngot  {got.tolist()}"
        )
        require(got.isnan().all() or not own.isnan().any(), text, "own-place")
    for rank, got in enumerate(flats):
        alone, zeros = nothing.clone(), torch.zeros_like(whole)
        own = slice(rank * len(shards[0]), (rank + 1) * len(shards[0]))
        alone[own] = zeros[own] = shards[rank]
        known = [
            same_as(zeros, "nothing-gathered", "only this rank's own part is there"),
        ]
        if got.isnan().all():
            fail(f"b.flat of {name} on rank {rank}: nothing was written.", "shard-forgotten")
        if torch.equal(got.isnan(), alone.isnan()) and torch.equal(got[own], alone[own]):
            fail(
                f"b.flat of {name} on rank {rank}: only its own part is there.\n"
                f"expected  {whole.tolist()}\ngot       {got.tolist()}",
                "nothing-gathered",
            )
        what = f"b.flat of the bucket of {name} on rank {rank} ({precision})"
        compare_tensors(whole, got, what, known=known)


@exercise(PATH)
def test_starts_only():
    """It starts one all-gather a bucket, keeps its Work in self.works, and does not wait"""
    for rank, seen in enumerate(started()):
        here = f"on rank {rank}, for a unit of two buckets"
        require(
            seen["waits"] == 0,
            f"start_gather has waited for {seen['waits']} works {here}. Then nothing can be "
            f"computed while the data travels: prefetching would be no use.",
            "waits",
        )
        expected = ["Work", "Work"]
        text = f"self.works {here}:\nexpected  {expected}\ngot       {seen['works']}\n"
        if seen["works"] == ["Tensor", "Tensor"]:
            fail(f"{text}Without async_op=True an all-gather waits for its end.", "waits")
        text += "gather() waits for what stands in self.works."
        require(seen["works"] == expected, text, "works-lost")
        compare_values(State.GATHERING, seen["state"], f"self.state {here}")
        text = f"The buckets were gathered in the order {seen['order']} {here}; self.buckets has "
        require(seen["order"] == [0, 1], f"{text}them in the order [0, 1].", "another-order")


@exercise(PATH)
def test_once():
    """A unit that is GATHERING or FULL is not gathered again"""
    for rank, seen in enumerate(started()):
        for key, state in (("sent again", "GATHERING"), ("sent when full", "FULL")):
            text = f"A call on a unit that is {state} sends {seen[key]} bytes (rank {rank})."
            require(seen[key] == 0, f"{text} Everything was sent before.", "sent-twice")
        text = f"The unit was FULL; after start_gather it is {seen['state when full']}."
        require(seen["state when full"] is State.FULL, text, "state-lost")


@exercise(PATH)
def test_bytes():
    """It sends this rank's shard to every other rank, and no more"""
    expected = wire([13], 1, RANKS)["all_gather"] + wire([4], 1, RANKS)["all_gather"]
    for rank, seen in enumerate(started()):
        text = f"Rank {rank} of {RANKS} sends {seen['sent']} bytes, expected {expected}."
        require(seen["sent"] == expected, text, "bytes")


@exercise(PATH)
def test_group():
    """It gathers in the unit's group: here ranks 1 and 2 of three"""
    by_rank = {rank: started()[rank]["group"] for rank in (1, 2)}
    for rank, seen in by_rank.items():
        text = f"Rank {rank} of three is rank {rank - 1} of its group, and has its place there; "
        text += f"b.owned(b.flat) is that place. It says:\n{seen['place']}"
        require(not seen["place"], text, "rank-in-the-world")
    for rank, seen in by_rank.items():
        text = "self.group must be passed on to comm.all_gather: without it the whole world takes "
        text += f"part, and the buffer is cut for the group. On rank {rank} it says:\n"
        require(not seen["error"], f"{text}{seen['error']}", "whole-world")
        text = f"The storage of b.flat has {seen['nbytes']} bytes on rank {rank}; {seen['size']} "
        text += "are b.flat's elements, which are the shards of two ranks, not of three."
        require(seen["nbytes"] == seen["size"], text, "size-of-the-world")
        compare_tensors(padded_whole("a", 2), seen["flat"], f"b.flat on rank {rank}")


@exercise(PATH)
@ALL_RANKS
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gathers_train(optimizer, ranks):
    """Training gives the weights that one process has on all the data"""
    weights_are_right(PATH, optimizer, ranks)


@exercise(PATH)
@ALL_RANKS
def test_gathers_cost(ranks):
    """Memory and bytes are those of ZeRO-3"""
    cost_is_right(PATH, ranks)
