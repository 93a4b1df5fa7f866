"""Gives the last rank whatever is left, so shards differ in length.

check: test_padding
mistake: last-takes-rest
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = numel // world_size
    end = numel if rank == world_size - 1 else (rank + 1) * shard
    return rank * shard, end
