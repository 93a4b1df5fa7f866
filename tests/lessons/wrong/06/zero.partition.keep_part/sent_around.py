"""Gets its part from the first rank, although it has all of x itself.

check: test_silent
mistake: collective
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    flat = x.reshape(-1).clone()
    comm.broadcast(flat, group=group, name="a checkpoint")
    own = flat[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part
