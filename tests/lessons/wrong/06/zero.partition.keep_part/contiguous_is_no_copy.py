"""`contiguous` copies only what is not contiguous already.

check: test_copy
mistake: view
"""


def keep_part(x, group):
    start, end = shard_bounds(x.numel(), comm.world_size(group), comm.rank(group))
    own = x.reshape(-1)[start:end].contiguous()
    missing = end - start - own.numel()
    return torch.nn.functional.pad(own, (0, missing)) if missing else own
