"""Flattens the transposed matrices.

check: test_order
mistake: transposed
"""


def flatten_params(module):
    return torch.cat([p.detach().T.reshape(-1) for _, p in module.named_parameters()])
