"""Gradient norms and clipping when every rank holds only its shard of the gradients.

The norm of the whole gradient is not the norm of a shard, nor a mean of the shards' norms. The
shards' *powers* add up: sum |g|^p over all ranks, then the p-th root; for the infinity norm, the
maximum of the maxima. A rank that owns nothing adds zero, and still takes part. Padding belongs to
no slice, and a tied parameter lies in the flat buffer once, so neither is counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from . import comm


def shard_power(grads: Iterable[torch.Tensor], norm_type: float) -> float:
    """This rank's part of the norm: sum |g|^p over all elements of its gradient slices.

    p is any number from 1 up; for p = inf the result is max |g|. `grads` are flat tensors of any
    length, also empty; without any element the result is 0.0. They are not changed. A gradient in
    fp16 or bf16 is converted to fp32 first, any other is taken in its own dtype. inf and NaN are
    passed on: the result is then inf or NaN.
    """
    grads = [g for g in grads if g.numel()]
    norms = [torch.linalg.vector_norm(g, norm_type, dtype=_wide(g)).item() for g in grads]
    if norm_type == math.inf:
        return max_keeping_nan(norms)
    return math.fsum(n**norm_type for n in norms) if all(map(math.isfinite, norms)) else sum(norms)


def combine_powers(powers: list[float], norm_type: float) -> float:
    """The norm of the whole gradient, from every rank's `shard_power` in rank order.

    (sum of the powers)^(1/p); for p = inf the largest. If a rank has inf or NaN, so has the result
    (NaN wins over inf for p = inf).
    """
    total = add_powers(powers, norm_type)
    root = norm_type != math.inf and math.isfinite(total)
    return total ** (1.0 / norm_type) if root else total


def add_powers(powers: list[float], norm_type: float) -> float:
    """The power of all parts together: the sum, or for the infinity norm the maximum."""
    return max_keeping_nan(powers) if norm_type == math.inf else sum(powers)


def global_norm(
    grads: Iterable[torch.Tensor],
    norm_type: float = 2.0,
    group: comm.Group = None,
    sharded: bool = True,
    *,
    cut: Iterable[torch.Tensor] = (),
    tp_group: comm.Group = None,
) -> float:
    """The norm of the gradient whose slices are spread over the ranks; every rank must call it.

    `grads` are this rank's slices. With `sharded=False` every rank holds all of them already.
    inf and NaN are returned as they are.

    With tensor parallelism `cut` are the slices of parameters that are cut over `tp_group`, and
    `grads` those of parameters that every rank of `tp_group` has: these count once.
    """
    powers = [shard_power(grads, norm_type), shard_power(cut, norm_type)]
    if sharded:
        powers = [add_powers(p, norm_type) for p in _from_all(powers, group, "gradient norm")]
    if tp_group is not None:
        replicated, parts = _from_all(powers, tp_group, "gradient norm over parts")
        powers = [replicated[0], *parts]
    return combine_powers(powers, norm_type)


def _from_all(powers: list[float], group: comm.Group, name: str) -> list[list[float]]:
    """For each of the powers: the list of all ranks' values."""
    mine = torch.tensor(powers, dtype=torch.float64, device=comm.device())
    return comm.all_gather_small(mine, group=group, name=name).T.tolist()


def scale_down(grads: Iterable[torch.Tensor], norm: float, max_norm: float) -> None:
    """Scale this rank's slices in place, so that the whole gradient's norm is at most `max_norm`.

    A slice is a view of a longer tensor: its elements change, its memory stays.

    `norm` is the whole gradient's norm, so that all ranks scale by the same factor,
    max_norm / (norm + 1e-6), as in torch. With a factor of 1 or more nothing is done. Nor is with a
    norm of inf or NaN: there is nothing sensible to scale it to, and `step` will skip the update.
    """
    factor = max_norm / (norm + 1e-6)
    if math.isfinite(norm) and factor < 1.0:
        for grad in grads:
            grad.mul_(factor)


def max_keeping_nan(values: list[float]) -> float:
    """The largest value, NaN if there is one, 0.0 for an empty list."""
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)


def _wide(grad: torch.Tensor) -> torch.dtype:
    return torch.promote_types(grad.dtype, torch.float32)
