"""Gives the shape of x to all that was gathered, padding included.

check: test_whole_by_hand
mistake: padding-left
"""


def gather_parts(part, shape, group, name=""):
    m, r, n = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * n)
    flat[r * n : (r + 1) * n] = part
    comm.all_gather(flat, group=group, name=name)
    return flat.view(shape)
