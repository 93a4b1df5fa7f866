"""A view of x, so all of x stays in memory. Only the last part is copied, to pad it.

check: test_copy
mistake: view
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end]
    if own.numel() == end - start:
        return own
    return torch.cat([own, own.new_zeros(end - start - own.numel())])
