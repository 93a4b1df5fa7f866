"""Lets torch.cat convert parameters of two dtypes to one.

check: test_mixed
mistake: mixes-dtypes
"""


def flatten_params(module):
    found = [p.detach().reshape(-1) for _, p in module.named_parameters()]
    return torch.cat(found) if found else torch.empty(0)
