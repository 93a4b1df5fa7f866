"""Trainings that several exercises are checked with, one launch for each number of ranks."""

from functools import cache

import pytest
from torch import Tensor

from course import training
from course.checks import on_ranks, same_as
from zero1_checks import ranks as on_each_rank

NUMEL = 174  # of training.small_model
ALL_RANKS = pytest.mark.parametrize("ranks", [2, 3, 4])


@cache
def trainings(path: str, ranks: int, names: tuple[str, ...]) -> list[dict[str, training.Run]]:
    """By rank and name, the trainings that the exercise `path` is checked with; one launch."""
    return on_ranks(on_each_rank.train, ranks, names)


@cache
def right(optimizer: str, ranks: int) -> dict[str, Tensor]:
    """The weights that one process has."""
    if optimizer == "groups":
        return training.oracle("adamw", ranks, groups=on_each_rank.with_and_without_decay)
    return training.oracle(optimizer, ranks)


def weights_are_right(path: str, names: tuple[str, ...], optimizer: str, ranks: int) -> None:
    """Fail unless the training called `optimizer`, one of `names`, ends where one process ends."""
    runs = [by_name[optimizer] for by_name in trainings(path, ranks, names)]
    start = training.weights(training.small_model(0))

    def mistakes(name: str):
        found = [same_as(start[name], "nothing-trained", "it is as it was at the start")]
        if optimizer == "groups":
            wrong = training.oracle("adamw", ranks, weight_decay=0.5)[name]
            found.append(same_as(wrong, "groups-lost", "decayed, though its group has no decay"))
        return found

    training.compare_weights(right(optimizer, ranks), runs, known=mistakes)
