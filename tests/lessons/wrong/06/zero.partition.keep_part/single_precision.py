"""The part is fp32 whatever x is.

check: test_part_dtypes
mistake: wrong-dtype
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end]
    part = torch.zeros(end - start)
    part[: own.numel()] = own
    return part
