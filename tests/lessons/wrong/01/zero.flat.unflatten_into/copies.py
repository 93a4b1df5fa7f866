"""Copies the values into the memory that the parameters have.

check: test_flat_to_model
mistake: not-a-view
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
        p.data.copy_(flat[offset : offset + p.numel()].view(p.shape))
        offset += p.numel()
