"""Puts new Parameter objects into the modules.

check: test_same_objects
mistake: new-objects
"""


def unflatten_into(module, flat):
    named = list(module.named_parameters())
    check_alike(named)
    if flat.dim() != 1 or flat.numel() < sum(p.numel() for _, p in named):
        raise ValueError("flat has the wrong shape")
    if named and flat.dtype != named[0][1].dtype:
        raise ValueError("flat has another dtype")
    offset = 0
    for name, p in named:
        where, _, last = name.rpartition(".")
        view = flat[offset : offset + p.numel()].view(p.shape)
        setattr(module.get_submodule(where), last, nn.Parameter(view))
        offset += p.numel()
