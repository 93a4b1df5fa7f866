"""Counts its calls in a variable of its own: one counter for all parameters.

check: test_first_use
mistake: own-counter
says: the second parameter
"""

import torch

count = [0]


@torch.no_grad()
def adamw_update(param, grad, exp_avg, exp_avg_sq, step, lr, betas, eps, weight_decay):
    if not exp_avg.any() and param.numel() > 1:
        count[0] = 0
    count[0] += 1
    beta1, beta2 = betas
    param.mul_(1 - lr * weight_decay)
    exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    m_hat = exp_avg / (1 - beta1 ** count[0])
    v_hat = exp_avg_sq / (1 - beta2 ** count[0])
    param.sub_(lr * m_hat / (v_hat.sqrt() + eps))
