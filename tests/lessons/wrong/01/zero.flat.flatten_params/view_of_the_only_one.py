"""Returns a view where the module has one parameter.

check: test_copy
mistake: not-a-copy
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    if len(named) == 1:
        return named[0][1].detach().view(-1)
    return torch.cat([p.detach().reshape(-1) for _, p in named]) if named else torch.empty(0)
