"""The world's rank modulo M: right only where the ranks of a group are neighbours.

check: test_whole_every_size
mistake: not-in-place
says: its rank in the group
"""


def gather_parts(part, shape, group, name=""):
    m, length = comm.world_size(group), part.numel()
    r = comm.rank() % m
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    return flat[: shape.numel()].view(shape)
