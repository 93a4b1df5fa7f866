"""Returns the last element in place of the one after it.

check: test_divisible
mistake: end-included
"""


def shard_bounds(numel, world_size, rank):
    if numel < 0 or world_size < 1 or not 0 <= rank < world_size:
        raise ValueError("out of range")
    shard = -(-numel // world_size)
    return rank * shard, (rank + 1) * shard - 1
