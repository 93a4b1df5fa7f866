"""Rounds the length down: the last elements belong to nobody.

check: test_padding
mistake: rounded-down
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = numel // world_size
    return rank * shard, (rank + 1) * shard
