"""The world's rank modulo M: right only where the ranks of a group are neighbours.

check: test_part_every_size
mistake: group-ignored
"""


def keep_part(x, group):
    m = comm.world_size(group)
    start, end = shard_bounds(x.numel(), m, comm.rank() % m)
    own = x.reshape(-1)[start:end]
    part = x.new_zeros(end - start)
    part[: own.numel()] = own
    return part
