"""Divides over the whole world, data-parallel ranks as well.

check: test_part_every_size
mistake: group-ignored
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(), comm.rank())
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part
