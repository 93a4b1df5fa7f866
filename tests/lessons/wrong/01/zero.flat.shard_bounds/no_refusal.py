"""Takes any rank and any world size.

check: test_refuses
mistake: accepts-nonsense
"""


def shard_bounds(numel, world_size, rank):
    shard = -(-numel // max(world_size, 1))
    return rank * shard, (rank + 1) * shard
