"""Expects that x lies in memory in its order.

check: test_across
mistake:
says: view size
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.view(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part
