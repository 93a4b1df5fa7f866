"""Sends 16 bits as 32, and 64 as well.

check: test_whole_dtypes
mistake: sent-in-fp32
"""


def gather_parts(part, shape, group, name=""):
    m, r, length = comm.world_size(group), comm.rank(group), part.numel()
    flat = torch.empty(m * length)
    flat[r * length : (r + 1) * length] = part
    comm.all_gather(flat, group=group, name=name)
    return flat[: shape.numel()].view(shape).to(part.dtype)
