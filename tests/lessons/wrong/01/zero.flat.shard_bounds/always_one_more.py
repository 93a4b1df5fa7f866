"""Adds an element also where the division comes out even.

check: test_divisible
mistake:
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = numel // world_size + 1
    return rank * shard, (rank + 1) * shard
