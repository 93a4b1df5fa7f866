"""Checks of `shard_bounds`: equal ranges, padding included."""

import itertools

import pytest

from course.checks import compare_values, exercise, fail
from zero.flat import shard_bounds


def bounds(numel: int, world_size: int) -> list:
    return [shard_bounds(numel, world_size, rank) for rank in range(world_size)]


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_divisible(world_size):
    """8 elements are cut into equal ranges that follow each other"""
    n = 8 // world_size
    starts = range(0, 8, n)
    compare_values(
        [(start, start + n) for start in starts],
        bounds(8, world_size),
        f"shard_bounds(8, {world_size}, rank), rank by rank",
        known=[
            ([(start, n) for start in starts], "length-for-end", "that is (start, length)"),
            ([(start, start + n - 1) for start in starts], "end-included", "end is one past it"),
        ],
    )


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize(("numel", "world_size"), [(10, 4), (174, 4), (7, 3), (3, 4), (0, 2)])
def test_padding(numel, world_size):
    """All ranks own equally many elements, padding included"""
    ranks = range(world_size)
    n = -(-numel // world_size)
    whole, rest = divmod(numel, world_size)
    down = [(rank * whole, (rank + 1) * whole) for rank in ranks]
    starts = [rank * whole + min(rank, rest) for rank in range(world_size + 1)]
    cut = "cut short at numel, but the padding belongs to a rank too"
    compare_values(
        [(rank * n, (rank + 1) * n) for rank in ranks],
        bounds(numel, world_size),
        f"shard_bounds({numel}, {world_size}, rank), rank by rank",
        known=[
            ([(rank * n, min((rank + 1) * n, numel)) for rank in ranks], "last-cut-short", cut),
            (
                [(min(rank * n, numel), min((rank + 1) * n, numel)) for rank in ranks],
                "last-cut-short",
                cut,
            ),
            (
                down,
                "rounded-down",
                f"the length is rounded down, so the last {rest} of {numel} belong to nobody",
            ),
            (
                [*down[:-1], (down[-1][0], numel)],
                "last-takes-rest",
                "the last rank takes the rest, so its shard is longer than the others",
            ),
            (
                list(itertools.pairwise(starts)),
                "uneven",
                "the first ranks own one element more; collectives want shards of one length",
            ),
        ],
    )


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize("arguments", [(-1, 2, 0), (8, 0, 0), (8, 2, 2), (8, 2, -1)])
def test_refuses(arguments):
    """Arguments that make no sense raise ValueError"""
    call = f"shard_bounds{arguments}"
    try:
        got = shard_bounds(*arguments)
    except ValueError:
        return
    except Exception as error:
        fail(f"{call} raises {type(error).__name__}, it should raise ValueError.", "wrong-error")
    fail(f"{call} gives {got}, it should raise ValueError.", "accepts-nonsense")
