"""Models that are larger than one rank's memory: allocate and initialise them piece by piece.

A model built under `torch.device("meta")` has shapes and no data. `allocate_on_demand` gives its
parameters real tensors whose storage is empty; `materialize` fills the storage of one piece, which
is then cut into shards and released, before the next piece is filled.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from . import comm


def allocate_on_demand(model: nn.Module) -> bool:
    """Replace parameters on the meta device by ones of the same shape with an empty storage.

    Tied parameters stay tied. Returns whether there were any. Raises ValueError if only some of
    the parameters are on the meta device, or a buffer is.
    """
    params = list(model.parameters())
    on_meta = [p for p in params if p.is_meta]
    if not on_meta:
        return False
    if len(on_meta) != len(params) or any(b.is_meta for b in model.buffers()):
        raise ValueError(
            "some of the model's tensors are on the meta device and some are not (or a buffer is); "
            "build the whole model under torch.device('meta'), with buffers on the CPU"
        )
    device = comm.device()
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is None:
                continue
            if p not in replaced:
                empty = torch.empty(p.shape, dtype=p.dtype, device=device)
                empty.untyped_storage().resize_(0)
                replaced[p] = nn.Parameter(empty, requires_grad=p.requires_grad)
            module._parameters[name] = replaced[p]
    return True


def materialize(
    module: nn.Module, own: list[nn.Parameter], init: Callable[[nn.Module], None] | None = None
) -> None:
    """Give the parameters `own`, all inside `module`, memory and their start values.

    The values come from `init(m)` for each module m that holds some of them, or from its
    `reset_parameters()`. Raises ValueError, naming the class, for one that has neither.
    """
    for p in own:
        p.untyped_storage().resize_(p.numel() * p.element_size())
    for m in module.modules():
        if not any(p is q for p in m._parameters.values() for q in own):
            continue
        if init is None and not hasattr(m, "reset_parameters"):
            raise ValueError(
                f"{type(m).__name__} holds parameters and has no reset_parameters(); pass "
                f"init=..., a function that sets a module's start values"
            )
        with torch.no_grad():
            m.reset_parameters() if init is None else init(m)
