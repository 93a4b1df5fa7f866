"""Leaves a norm at the limit alone.

check: test_like_torch
mistake: at-the-limit
"""


def scale_down(grads, norm, max_norm):
    if math.isfinite(norm) and norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / (norm + 1e-6))
