"""Stops at numel, so the last shard is shorter than the others.

check: test_padding
mistake: last-cut-short
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = -(-numel // world_size)
    return rank * shard, min((rank + 1) * shard, numel)
