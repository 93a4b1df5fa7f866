"""Starts the all-gather and does not wait for it.

check: test_whole_by_hand
mistake: no-wait
"""


def gather_parts(part, shape, group, name=""):
    m, r, n = comm.world_size(group), comm.rank(group), part.numel()
    flat = part.new_empty(m * n)
    flat[r * n : (r + 1) * n] = part
    comm.all_gather(flat, group=group, name=name, async_op=True)
    return flat[: shape.numel()].view(shape)
