"""Asks for views, which a transposed parameter cannot give.

check: test_strided
mistake:
says: view size
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    return torch.cat([p.detach().view(-1) for _, p in named]) if named else torch.empty(0)
