"""Walks over the modules, so a shared weight comes twice.

check: test_tied
mistake: tied-twice
"""


def flatten_params(module):
    found = [p for m in module.modules() for p in m.parameters(recurse=False)]
    return torch.cat([p.detach().reshape(-1) for p in found])
