"""Divides by the norm itself.

check: test_like_torch
mistake: epsilon
"""


def scale_down(grads, norm, max_norm):
    if math.isfinite(norm) and norm > max_norm:
        for grad in grads:
            grad.mul_(max_norm / norm)
