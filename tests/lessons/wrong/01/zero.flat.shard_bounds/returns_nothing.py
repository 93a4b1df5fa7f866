"""Computes, and forgets to return.

check: test_divisible
mistake: returns-none
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = -(-numel // world_size)
    bounds = rank * shard, (rank + 1) * shard
