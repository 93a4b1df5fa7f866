"""Keeps the result in the autograd graph.

check: test_detached
mistake: not-detached
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    return torch.cat([p.reshape(-1) for _, p in named])
