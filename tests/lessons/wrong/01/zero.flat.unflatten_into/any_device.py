"""Takes a flat tensor on another device.

check: test_refuses_flat
mistake: wrong-error
says: another device
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    check_alike(named)
    if flat.dim() != 1 or flat.numel() < sum(p.numel() for _, p in named):
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
