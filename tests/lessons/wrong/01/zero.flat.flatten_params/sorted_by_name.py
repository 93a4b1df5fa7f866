"""Sorts by name: not the order of registration.

check: test_order
mistake: by-name
"""


def flatten_params(module):
    named = sorted(module.named_parameters())
    return torch.cat([p.detach().reshape(-1) for _, p in named])
