"""Makes flat contiguous, which copies a tensor with gaps between its elements.

check: test_gaps
mistake: not-a-view
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    check_alike(named)
    if flat.dim() != 1 or flat.numel() < sum(p.numel() for _, p in named):
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    flat = flat.contiguous()
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
