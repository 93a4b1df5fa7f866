"""Forgets modules without parameters.

check: test_nothing
mistake:
says: expected a non-empty list
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    return torch.cat([p.detach().reshape(-1) for _, p in named])
