"""Adds up tensors that are zero but for the own part: twice the bytes.

check: test_bytes
mistake: all-reduce
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_zeros(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_reduce(flat, op="sum", group=group, name=name)
    return flat[: shape.numel()].view(shape)
