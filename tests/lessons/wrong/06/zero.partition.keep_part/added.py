"""Adds the elements to zeros, which makes 0.0 of -0.0.

check: test_part_bits
mistake: calculated
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] += own
    return part
