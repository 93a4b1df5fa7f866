"""Takes a large norm for infinity.

check: test_like_torch
mistake: wrong-scale
"""


def scale_down(grads, norm, max_norm):
    if norm != norm or norm > 1e30:
        return
    factor = max_norm / (norm + 1e-6)
    if factor < 1.0:
        for grad in grads:
            grad.mul_(factor)
