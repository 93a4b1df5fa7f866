"""torch.chunk gives fewer pieces than ranks, if there are few elements.

check: test_part_every_size
mistake:
says: IndexError
"""


def keep_part(x, group):
    m, r = comm.world_size(group), comm.rank(group)
    own = x.reshape(-1).chunk(m)[r]
    part = x.new_zeros(-(-x.numel() // m))
    part[: own.numel()] = own
    return part
