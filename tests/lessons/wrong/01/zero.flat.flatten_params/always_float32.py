"""Writes into a float32 buffer, whatever the parameters' dtype is.

check: test_dtype
mistake: wrong-dtype
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    flat = torch.empty(sum(p.numel() for _, p in named))
    offset = 0
    for _, p in named:
        flat[offset : offset + p.numel()] = p.detach().reshape(-1)
        offset += p.numel()
    return flat
