"""Lets torch complain, half-way and in its own words.

check: test_refuses_flat
mistake: wrong-error
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    check_alike(named)
    offset = 0
    for _, p in named:
        p.data = flat[offset : offset + p.numel()].view(p.shape)
        offset += p.numel()
