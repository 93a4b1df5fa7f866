"""Trainings that every exercise of lesson 05 ends with, one launch for each number of ranks."""

from functools import cache

import pytest
from torch import Tensor

from course import training
from course.checks import on_ranks, require, same_as
from zero.formulas import model_states, padded, wire
from zero3_checks import passes

ALL_RANKS = pytest.mark.parametrize("ranks", [2, 3, 4])


@cache
def trainings(path: str, ranks: int) -> list[dict]:
    """By rank, what `passes.train` has found with the piece `path`."""
    return on_ranks(passes.train, ranks)


@cache
def right(optimizer: str, ranks: int) -> dict[str, Tensor]:
    """The weights that one process has."""
    return training.oracle(optimizer, ranks, make=passes.deep)


def weights_are_right(path: str, optimizer: str, ranks: int) -> None:
    """Fail unless the training ends where one process ends."""
    runs = [by_name[optimizer] for by_name in trainings(path, ranks)]
    start = training.weights(passes.deep(0))
    training.compare_weights(
        right(optimizer, ranks),
        runs,
        known=lambda name: [same_as(start[name], "nothing-trained", "it is as at the start")],
    )


def cost_is_right(path: str, ranks: int) -> None:
    """Fail unless bytes at rest, at most, and on the wire are those of ZeRO-3."""
    frozen = passes.FROZEN
    rest = model_states(passes.TRAINED, 3, ranks, frozen=frozen).parameters
    sent = sum(wire(passes.TRAINED, 3, ranks, frozen=frozen).values())
    units = [passes.TRAINED[:1], [passes.TRAINED[1], frozen[0]], passes.TRAINED[2:]]
    full = [sum(4 * padded(n, ranks) for n in unit) for unit in units]
    most = rest + max(full[0] + full[1], full[1] + full[2])
    for rank, by_name in enumerate(trainings(path, ranks)):
        cost = by_name["cost"]
        text = f"Rank {rank} of {ranks} keeps {cost['rest']} bytes of parameters between two steps"
        require(cost["rest"] == rest, f"{text}, {rest} are its shards.", "not-released")
        text = f"Rank {rank} of {ranks} has {cost['most']} bytes of parameters at one time"
        text += f", its shards and two neighbouring units are {most}."
        require(cost["most"] <= most, text, "too-many-at-once")
        text = f"Rank {rank} of {ranks} sends {cost['sent']} bytes a step, ZeRO-3 sends {sent}."
        require(cost["sent"] == sent, text, "bytes")
        whole = cost["whole gradients"]
        text = f"Rank {rank} of {ranks} still has the whole gradients of {whole} buckets after "
        require(whole == 0, f"{text}backward.", "whole-gradients")
