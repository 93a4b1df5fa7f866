"""AdamW in float64, right, or with one of the mistakes that people make in it."""

import torch
from torch import Tensor

from course.checks import Recogniser, same_as

MISTAKES = {
    "no-decay": "the weight decay is missing",
    "coupled-decay": "the decay is added to the gradient (that is Adam with L2); AdamW shrinks the "
    "weight and leaves the moments alone",
    "decay-without-lr": "the decay factor is 1 - weight_decay; it should be 1 - lr * weight_decay",
    "decay-last": "the decay comes after the step, and so shrinks the step as well",
    "no-correction": "the moments are used as they are; m_hat and v_hat correct their bias",
    "one-correction": "only the first moment's bias is corrected",
    "eps-inside": "eps stands under the square root",
    "eps-early": "eps is added before the second moment's bias is corrected",
    "no-root": "divided by v_hat; its square root is missing",
    "step-too-small": "corrected with step - 1, but step counts from 1",
    "step-too-large": "corrected with step + 1; step counts this update already",
    "betas-swapped": "beta1 and beta2 are in each other's place",
    "weights-swapped": "beta is how much of the old moment stays, 1 - beta how much comes in new",
    "no-square": "v needs the square of the gradient",
    "uphill": "the step goes up the gradient, not down",
    "one-scale": "all elements are divided by one number; each has a v of its own",
}


def adamw(
    param: Tensor, grads: list[Tensor], hyper: dict, first: int = 1, mistake: str = ""
) -> tuple[Tensor, Tensor, Tensor]:
    """param, m and v, float64, after updates number `first`, `first` + 1, ... from zero moments."""
    p, m, v = param.double(), torch.zeros(param.shape).double(), torch.zeros(param.shape).double()
    lr, (beta1, beta2), eps = hyper["lr"], hyper["betas"], hyper["eps"]
    if mistake == "betas-swapped":
        beta1, beta2 = beta2, beta1
    decay = 0.0 if mistake == "no-decay" else hyper["weight_decay"]
    shift = {"step-too-small": -1, "step-too-large": 1}.get(mistake, 0)
    for step, grad in enumerate(grads, first + shift):
        g = grad.double() + (decay * p if mistake == "coupled-decay" else 0.0)
        shrink = 1 - decay * (1.0 if mistake == "decay-without-lr" else lr)
        if mistake not in ("coupled-decay", "decay-last"):
            p = p * shrink
        square = g if mistake == "no-square" else g * g
        if mistake == "weights-swapped":
            m, v = (1 - beta1) * m + beta1 * g, (1 - beta2) * v + beta2 * square
        else:
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * square
        c1, c2 = 1 - beta1**step, 1 - beta2**step
        c1 = 1.0 if mistake == "no-correction" else c1
        c2 = 1.0 if mistake in ("no-correction", "one-correction") else c2
        change = lr * (m / c1) / _denominator(v, c2, eps, mistake)
        p = p + change if mistake == "uphill" else p - change
        p = p * shrink if mistake == "decay-last" else p
    return p, m, v


def _denominator(v: Tensor, c2: float, eps: float, mistake: str) -> Tensor:
    if mistake == "one-scale":
        v = v.mean() * torch.ones_like(v)
    if mistake == "eps-inside":
        return (v / c2 + eps).sqrt()
    if mistake == "eps-early":
        return (v.sqrt() + eps) / c2**0.5
    if mistake == "no-root":
        return v / c2 + eps
    return (v / c2).sqrt() + eps


def known(param: Tensor, grads: list[Tensor], hyper: dict, which: int) -> list[Recogniser]:
    """A recogniser for each mistake; `which` is 0 for the parameter, 1 and 2 for the moments."""
    found = []
    for mistake, sentence in MISTAKES.items():
        wrong = adamw(param, grads, hyper, mistake=mistake)[which]
        if torch.isfinite(wrong).all():
            found.append(same_as(wrong.float(), mistake, sentence))
    return found
