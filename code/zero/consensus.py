"""What the ranks must agree on before an update: which parameters were used, and is all finite.

Once states are sharded, a gradient's inf or NaN lies on one rank only, and a parameter may have
been used on some ranks only. If each rank decided for itself, one would skip the update while the
others wait for it, or their loss scales would drift apart. So every such question is answered with
a few bytes from every rank, and every rank draws the same conclusion.
"""

from __future__ import annotations

import torch
from torch import nn

from . import comm
from .bucket import ParamSlice


def agree_used(
    trainable: list[nn.Parameter], used: set[nn.Parameter], group: comm.Group
) -> set[nn.Parameter]:
    """The parameters that have a gradient on at least one rank. Collective, a byte for each."""
    return _on_any_rank(trainable, used, [group], "used")


def agree_finite(slices: list[ParamSlice], groups: list[comm.Group]) -> bool:
    """Are all gradients on all ranks finite? Every rank receives the same answer. Collective.

    `slices` are this rank's: `s.param.grad` is a flat tensor, or None for a parameter that was not
    used. The ranks of each of `groups` are asked in turn, with one `comm.any_rank` a group, also by
    a rank that owns nothing. (There are two groups with tensor parallelism: the answer that the
    first one gave is what this rank reports to the second.)
    """
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    for group in groups:
        bad = comm.any_rank(bad, group=group, name="overflow")
    return not bad


def name_nonfinite(
    names: dict[nn.Parameter, str],
    trainable: list[nn.Parameter],
    slices: list[ParamSlice],
    groups: list[comm.Group],
) -> str:
    """The parameters with inf or NaN in their gradient on any rank, for a message. Collective."""
    have = [s for s in slices if s.param.grad is not None]
    bad = {s.whole for s in have if not s.param.grad.isfinite().all()}
    found = _on_any_rank(trainable, bad, groups, "nonfinite")
    listed = [names[p] for p in trainable if p in found]
    if not listed:
        return "each gradient is finite, but their norm is not"
    return "inf or NaN in the gradient of " + ", ".join(listed[:5])


def _on_any_rank(
    params: list[nn.Parameter], mine: set[nn.Parameter], groups: list[comm.Group], name: str
) -> set[nn.Parameter]:
    flags = torch.tensor([p in mine for p in params], dtype=torch.uint8, device=comm.device())
    for group in groups:
        flags = comm.all_gather_small(flags, group=group, name=name).amax(0)
    return {p for p, flag in zip(params, flags.tolist(), strict=True) if flag}


def all_finite(grad: torch.Tensor) -> bool:
    """Is no element inf or NaN?"""
    # A finite sum has finite terms. The exact look takes several times as long; it is needed only
    # when the sum of finite values overflows.
    return bool(grad.sum().isfinite()) or bool(grad.isfinite().all())
