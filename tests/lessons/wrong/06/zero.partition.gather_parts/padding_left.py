"""The zeros at the end come back too.

check: test_whole_by_hand
mistake: padding-left
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    return comm.all_gather(flat, group=group, name=name)
