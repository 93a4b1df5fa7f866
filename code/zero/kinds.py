"""What a rank keeps, kind by kind: the labels by which memory is accounted for.

The meter counts the bytes of live tensors from outside, whatever is said here. These lists only
tell it what to call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .optimizer import ZeroOptimizer


def tensors_by_kind(opt: ZeroOptimizer) -> dict[str, list[torch.Tensor]]:
    """The model states of this rank; tensors may share storage.

    "parameters", whole ones and shards; "gradients"; "optimizer", masters and moments; "counters",
    the optimizer's scalar step counts; "offloaded", parameters and optimizer states in files.
    """
    buckets = opt.buckets + opt.frozen_buckets
    parameters = [t for b in buckets for t in (b.flat, b.shard)]
    parameters += [p.data for p in opt.names if not (p.requires_grad or opt.shards_frozen)]
    gradients = [g for b in opt.buckets for g in (b.grad, b.owned_grad) if g is not None]
    gradients += [p.grad for p in opt.names if p.grad is not None]
    states = [v for s in opt.inner.state.values() for v in s.values() if torch.is_tensor(v)]
    optimizer = [b.master for b in opt.buckets if b.has_master] + [t for t in states if t.dim()]
    on_disk = opt.offload.files.holds
    return {
        "parameters": [t for t in parameters if not on_disk(t)],
        "gradients": gradients,
        "optimizer": [t for t in optimizer if not on_disk(t)],
        "counters": [t for t in states if not t.dim()],
        "offloaded": [t for t in parameters + optimizer if on_disk(t)],
    }
