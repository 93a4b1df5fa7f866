"""The group's ranks, but the place of the rank in the world.

check: test_whole_every_size
mistake: group-ignored
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(), part.numel()
    flat = part.new_empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    return flat[: shape.numel()].view(shape)
