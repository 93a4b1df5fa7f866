"""Spreads the rest over the first ranks, one element each.

check: test_padding
mistake: uneven
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    whole, rest = divmod(numel, world_size)
    start = rank * whole + min(rank, rest)
    return start, start + whole + (rank < rest)
