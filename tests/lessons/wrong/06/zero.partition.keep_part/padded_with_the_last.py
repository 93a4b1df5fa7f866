"""Pads with the last number in place of zeros.

check: test_part_by_hand
mistake:
says: wrong numbers
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start) + (x.reshape(-1)[-1] if x.numel() else 0)
    part[: own.numel()] = own
    return part
