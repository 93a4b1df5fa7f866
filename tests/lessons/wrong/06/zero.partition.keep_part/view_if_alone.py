"""Alone in its group, a rank keeps a view of x.

check: test_part_alone
mistake: view
"""


def keep_part(x, group):
    m, r = comm.world_size(group), comm.rank(group)
    if m == 1:
        return x.reshape(-1)
    start, end = shard_bounds(x.numel(), m, r)
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part
