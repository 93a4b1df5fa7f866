"""Walks over the modules, so a shared weight takes two parts.

check: test_tied_stay_tied
mistake: tied-twice
"""


def unflatten_into(module, flat):
    named = [pair for m in module.modules() for pair in m.named_parameters(recurse=False)]
    check_alike(named)
    if flat.dim() != 1 or flat.numel() < sum(p.numel() for _, p in named):
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
