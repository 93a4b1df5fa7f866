"""Reads the memory of each parameter from end to end.

check: test_strided
mistake: as-in-memory
"""


def flatten_params(module):
    named = list(module.named_parameters())
    check_alike(named)
    flats = [p.detach().as_strided((p.numel(),), (1,)) for _, p in named]
    return torch.cat(flats) if flats else torch.empty(0)
