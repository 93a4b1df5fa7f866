"""Makes no step if the gradient is zero.

check: test_zero_gradient
mistake: no-step-for-zero
"""


@torch.no_grad()
def adamw_update(param, grad, exp_avg, exp_avg_sq, step, lr, betas, eps, weight_decay):
    beta1, beta2 = betas
    param.mul_(1 - lr * weight_decay)
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if grad.any():
        root = (exp_avg_sq.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
        param.addcdiv_(exp_avg, root, value=-lr / (1 - beta1**step))
