"""The own part among zeros; nothing is gathered.

check: test_whole_by_hand
mistake: own-part
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_zeros(m * length)
    flat[r * length : (r + 1) * length] = part
    return flat[: shape.numel()].view(shape)
