"""Takes only the parameters that need a gradient.

check: test_frozen
mistake: frozen-left-out
"""


def flatten_params(module):
    found = [p for p in module.parameters() if p.requires_grad]
    return torch.cat([p.detach().reshape(-1) for p in found])
