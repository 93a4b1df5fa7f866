"""Lays the parameters end to end in reverse order.

check: test_order
mistake: backwards
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    return torch.cat([p.detach().reshape(-1) for _, p in reversed(named)])
