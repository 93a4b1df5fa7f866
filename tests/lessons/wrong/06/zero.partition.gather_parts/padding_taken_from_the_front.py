"""Drops the first elements for the padding.

check: test_whole_by_hand
mistake:
says: wrong numbers
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    return flat[m * length - shape.numel() :].view(shape)
