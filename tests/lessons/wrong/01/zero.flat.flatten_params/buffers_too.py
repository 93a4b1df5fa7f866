"""Flattens the state dict, whose tied weights come twice.

check: test_tied
mistake: tied-twice
"""


def flatten_params(module):
    return torch.cat([t.reshape(-1) for t in module.state_dict().values()])
