"""Checks of `FlatLayout.slices`: which part of which parameter a rank owns."""

from functools import cache

import pytest
import torch

from course import training
from course.checks import exercise, fail, require
from zero.flat import FlatLayout, Slice

LAYOUTS = {
    "a of 6, b of 3": [("a", (6,)), ("b", (3,))],
    "one matrix": [("w", (3, 5))],
    "many small ones": [(f"p{i}", (1 + i % 3,)) for i in range(7)],
    "a scalar and an empty one": [("scale", ()), ("none", (0, 4)), ("w", (2, 2))],
    "three elements": [("a", (2,)), ("b", (1,))],
}


def sizes(named: list) -> list[tuple[str, int]]:
    return [(name, torch.Size(shape).numel()) for name, shape in named]


def right(named: list, world_size: int, rank: int) -> list[tuple]:
    """Element by element: whose is it, and where does it stand?"""
    elements = [(name, i) for name, numel in sizes(named) for i in range(numel)]
    shard = -(-len(elements) // world_size)
    found: dict[str, list] = {}
    for offset, (name, i) in enumerate(elements[rank * shard : (rank + 1) * shard]):
        found.setdefault(name, [name, i, i, offset])[2] = i + 1
    return [tuple(s) for s in found.values()]


def known_mistakes(named: list, world_size: int, rank: int) -> list[tuple[list, str, str]]:
    """Wrong lists that learners make: (list, mistake, sentence)."""
    good = right(named, world_size, rank)
    starts, at = {}, 0
    for name, numel in sizes(named):
        starts[name], at = at, at + numel
    first = rank * -(-at // world_size)
    in_flat = [(n, s + starts[n], e + starts[n], o) for n, s, e, o in good]
    owned = {n: (n, s, e, o) for n, s, e, o in good}
    with_empty = [owned.get(n) for n, _ in sizes(named)]
    whole = [(n, 0, dict(sizes(named))[n], o) for n, s, e, o in good]
    return [
        (in_flat, "range-in-flat", "start and end count inside the parameter, not inside flat"),
        (
            [(n, s, e, o + first) for n, s, e, o in good],
            "offset-in-flat",
            "offset counts from the beginning of the rank's shard, not of flat",
        ),
        ([(n, s, e, 0) for n, s, e, _ in good], "offset-0", "offset is 0 for the first only"),
        ([(n, s, e, s) for n, s, e, _ in good], "offset-is-start", "offset repeats start"),
        ([(n, s, e - s, o) for n, s, e, o in good], "length-for-end", "end is a length"),
        (whole, "whole-parameters", "a rank may own a part of a parameter, cut at its bounds"),
        (good[::-1], "wrong-order", "the order should be that of flat"),
        (with_empty, "empty-kept", "parameters that the rank owns nothing of are listed too"),
    ]


def fields(found: object, what: str) -> list[tuple]:
    text = f"{what} should be a list of Slice objects, it is {found!r}"
    require(isinstance(found, list), text[:300], "wrong-type")
    require(all(isinstance(s, Slice) for s in found), text[:300], "wrong-type")
    return [(s.name, s.start, s.end, s.offset) for s in found]


@exercise("zero.flat.FlatLayout.slices")
@pytest.mark.parametrize("world_size", [2, 4, 3, 1, 8])
@pytest.mark.parametrize("case", LAYOUTS)
def test_each_rank(case, world_size):
    """The slices of every rank, for several layouts and numbers of ranks"""
    named = LAYOUTS[case]
    layout = FlatLayout(named, world_size)
    got = [fields(layout.slices(r), f"slices({r})") for r in range(world_size)]
    expected = [right(named, world_size, rank) for rank in range(world_size)]
    wrong = [rank for rank in range(world_size) if got[rank] != expected[rank]]
    if not wrong:
        return
    mistakes = [known_mistakes(named, world_size, rank) for rank in range(world_size)]
    for column in zip(*mistakes):
        _, mistake, sentence = column[0]
        if all(_alike(got[rank], column[rank][0]) for rank in range(world_size)):
            fail(_both(case, world_size, wrong[0], expected, got, sentence), mistake)
    if any(e > n for g in got for name, _, e, _ in g for n in [dict(sizes(named))[name]]):
        sentence = "an end is past the end of its parameter: padding is in no slice"
        fail(_both(case, world_size, wrong[0], expected, got, sentence), "padding-in-slice")
    if any(e <= s for g in got for _, s, e, _ in g):
        sentence = "a slice is empty: leave parameters out that the rank owns nothing of"
        fail(_both(case, world_size, wrong[0], expected, got, sentence), "empty-kept")
    fail(_both(case, world_size, wrong[0], expected, got, ""))


def _alike(got: list, wrong: list) -> bool:
    """A None in `wrong` stands for an empty slice."""
    return len(got) == len(wrong) and all(
        g == w or (w is None and g[1] >= g[2]) for g, w in zip(got, wrong)
    )


def _both(case, world_size, rank, expected, got, sentence) -> str:
    layout = ", ".join(f"{name} of {numel}" for name, numel in sizes(LAYOUTS[case]))
    return (
        f"{layout}; {world_size} ranks; slices({rank}) as (name, start, end, offset)"
        f"{': ' + sentence if sentence else ''}.\n"
        f"expected  {expected[rank]}\ngot       {got[rank]}"
    )


@exercise("zero.flat.FlatLayout.slices")
def test_tiles():
    """Every element belongs to exactly one rank, and nothing is changed by asking"""
    layout = FlatLayout([("a", (7, 13)), ("b", (13,)), ("c", (13, 5)), ("d", (5,))], 4)
    spans = list(layout.spans)
    seen = dict.fromkeys((s.name for s in layout.spans), 0)
    for rank in range(4):
        for name, start, end, _ in fields(layout.slices(rank), f"slices({rank})"):
            seen[name] += end - start
    sizes_of = {s.name: s.end - s.start for s in layout.spans}
    require(seen == sizes_of, f"elements owned: {seen}; elements there: {sizes_of}")
    again = [layout.slices(rank) for rank in (3, 0)]
    require(again == [layout.slices(3), layout.slices(0)], "A second call gives something else.")
    require(layout.spans == spans, "layout.spans has been changed.", "layout-changed")


@cache
def trained(optimizer: str) -> list[training.Run]:
    return training.train_on_ranks(1, optimizer, 4)


@exercise("zero.flat.FlatLayout.slices")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_training(optimizer):
    """ZeRO-1 on four ranks trains with your slices as one process does"""
    training.compare_weights(training.oracle(optimizer, 4), trained(optimizer))
