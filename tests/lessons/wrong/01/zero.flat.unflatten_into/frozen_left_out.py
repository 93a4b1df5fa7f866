"""Takes only the parameters that need a gradient.

check: test_frozen_too
mistake: frozen-left-out
"""


def unflatten_into(module, flat):
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    check_alike(named)
    if flat.dim() != 1 or flat.numel() < sum(p.numel() for _, p in named):
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
