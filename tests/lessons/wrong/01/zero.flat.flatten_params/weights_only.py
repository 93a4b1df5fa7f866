"""Leaves the biases out.

check: test_order
mistake: no-biases
"""


def flatten_params(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.dim() > 1])
