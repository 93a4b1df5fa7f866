"""Scales nothing while the norm itself is below the limit.

check: test_like_torch
mistake: norm-decides
"""


def scale_down(grads, norm, max_norm):
    if not math.isfinite(norm) or norm < max_norm:
        return
    for grad in grads:
        grad.mul_(max_norm / (norm + 1e-6))
