"""Fills the matrices column by column.

check: test_values
mistake: transposed
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
        part = flat[offset : offset + p.numel()]
        p.data = part.view(p.shape[::-1]).t() if p.dim() == 2 else part
        offset += p.numel()
