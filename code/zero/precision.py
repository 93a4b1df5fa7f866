"""Which numbers are kept in which format, and the loss scale that fp16 needs.

Mixed precision keeps two copies of the weights. The model computes with 16-bit parameters and
gets 16-bit gradients; the optimizer updates an fp32 *master* copy, because an update of a
thousandth of a weight is lost in bf16, which has 8 bits of precision. After each step the master
is rounded into the model's parameters. (Micikevicius et al. 2018; ZeRO paper, section 3.1.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Precision:
    """The formats of one training run.

    `param_dtype` is what floating-point parameters are converted to; None leaves every parameter
    in its own dtype and needs no master copy. `scaled` says whether the loss must be scaled.
    """

    name: str
    param_dtype: torch.dtype | None
    scaled: bool = False

    def param(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which the model holds a parameter that was created as `dtype`."""
        return self.param_dtype if self.param_dtype and dtype.is_floating_point else dtype

    def master(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype that the optimizer updates, for a parameter that was created as `dtype`."""
        return torch.float32 if self.param_dtype else dtype


POLICIES = {
    "fp32": Precision("fp32", None),
    "bf16": Precision("bf16", torch.bfloat16),
    "fp16": Precision("fp16", torch.float16, scaled=True),
}


def policy(name: str) -> Precision:
    """The policy called "fp32", "bf16" or "fp16"; ValueError for another name."""
    if name not in POLICIES:
        raise ValueError(f"precision={name!r} is unknown; choose one of {', '.join(POLICIES)}")
    return POLICIES[name]


class LossScale:
    """A factor on the loss that keeps small fp16 gradients from becoming zero.

    It starts high. After a step whose gradients overflowed (on any rank: the ranks agree first) it
    is halved; after `growth_interval` good steps in a row it is doubled.
    """

    def __init__(self, scale: float = 2.0**16, growth_interval: int = 2000):
        self.scale, self.growth_interval, self.good_steps = scale, growth_interval, 0

    def apply(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale, in fp32: 2^16 is above the largest fp16 number, 65504.

        The gradient of a loss that was itself computed in fp16 has to be below that as well, so
        such a loss costs one skipped update, after which the scale is 2^15. A loss of
        `out.float()` costs none.
        """
        return loss.to(torch.promote_types(loss.dtype, torch.float32)) * self.scale

    def update(self, overflow: bool) -> None:
        """Adapt after one step; every rank must pass the same `overflow`.

        After an overflow: half the `scale` (any float, not only a power of 2), but not below 1.0,
        and `good_steps` starts again from 0. Otherwise one more good step; when `good_steps`
        reaches `growth_interval`, twice the scale, without an upper limit, and the count starts
        again.
        """
        if overflow:
            self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
            return
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            self.scale, self.good_steps = self.scale * 2, 0
