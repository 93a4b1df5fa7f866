"""Compares flat with the first parameter only; another one changes its dtype silently.

check: test_refuses_mixed
mistake: mixes-dtypes
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    numel = sum(p.numel() for _, p in named)
    if flat.dim() != 1 or flat.numel() < numel:
        raise ValueError(f"a flat tensor of at least {numel} elements is needed")
    if named:
        first = named[0][1]
        if flat.dtype != first.dtype or flat.device != first.device:
            raise ValueError(f"flat is {flat.dtype}, the parameters are {first.dtype}")
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
