"""Returns start and length in place of start and end.

check: test_divisible
mistake: length-for-end
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = -(-numel // world_size)
    return rank * shard, shard
