"""The last part is shorter.

check: test_part_by_hand
mistake: not-padded
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    return x.reshape(-1)[start:end].clone()
