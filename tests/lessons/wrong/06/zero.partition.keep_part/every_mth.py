"""Every M-th element.

check: test_part_by_hand
mistake: every-mth
says: one range
"""


def keep_part(x, group):
    m, r = comm.world_size(group), comm.rank(group)
    own = x.reshape(-1)[r::m]
    part = x.new_zeros(-(-x.numel() // m))
    part[: own.numel()] = own
    return part
