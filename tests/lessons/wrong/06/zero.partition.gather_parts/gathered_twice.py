"""Gathers two times.

check: test_bytes
mistake: all-reduce
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    comm.all_gather(flat, group=group, name=name)
    return flat[: shape.numel()].view(shape)
