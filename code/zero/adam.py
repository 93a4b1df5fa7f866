"""AdamW, the arithmetic in plain lines (Loshchilov & Hutter 2019).

It is *elementwise*: the new value of a weight depends on that weight, its gradient and its two
moments, and on nothing else. So it can run on any slice of the parameters, and N ranks that each
run it on their own 1/N compute together exactly what one process computes. That is all that
ZeRO-1 rests on. (An optimizer that looks across elements, like LBFGS or Adafactor, cannot be cut
this way.)
"""

from __future__ import annotations

from collections.abc import Callable

import torch


@torch.no_grad()
def adamw_update(
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """One AdamW update of `param`, in place, as `torch.optim.AdamW` does it.

    param, grad, exp_avg (first moment, m), exp_avg_sq (second moment, v): tensors of one shape and
    dtype. `param` and the two moments are changed in place, `grad` is only read; nothing is
    returned. `step` counts this parameter's updates, this one included, from 1. A gradient of
    zero is a gradient: all of the following happens.

        param = param * (1 - lr * weight_decay)
        m     = beta1 * m + (1 - beta1) * grad
        v     = beta2 * v + (1 - beta2) * grad**2
        m_hat = m / (1 - beta1**step)
        v_hat = v / (1 - beta2**step)
        param = param - lr * m_hat / (sqrt(v_hat) + eps)

    The weight decay is decoupled: it shrinks the weight and does not enter the moments. The moments
    start at zero; m_hat and v_hat undo the bias that this gives the first steps.
    """
    beta1, beta2 = betas
    param.mul_(1 - lr * weight_decay)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    correction1 = 1 - beta1**step
    correction2 = 1 - beta2**step
    denominator = (exp_avg_sq.sqrt() / correction2**0.5).add_(eps)
    param.addcdiv_(exp_avg, denominator, value=-lr / correction1)


class AdamW(torch.optim.Optimizer):
    """`adamw_update` behind the interface of a PyTorch optimizer, with a step counter a parameter.

    Equal to `torch.optim.AdamW` bit for bit (its plain implementation on the CPU), and slower.
    """

    elementwise = True

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable | None = None):
        """Update every parameter that has a gradient; a parameter without one is left alone."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            hyper = {k: group[k] for k in ("lr", "betas", "eps", "weight_decay")}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(
                        step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)
                    )
                state["step"] += 1
                adamw_update(
                    p, p.grad, state["exp_avg"], state["exp_avg_sq"], state["step"], **hyper
                )
        return loss
