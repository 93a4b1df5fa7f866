"""Notices that flat is too short when most parameters are changed already.

check: test_refuses_flat
mistake: checked-too-late
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    check_alike(named)
    if flat.dim() != 1:
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    offset = 0
    for _, p in named:
        if offset + p.numel() > flat.numel():
            raise ValueError("flat is too short")
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
