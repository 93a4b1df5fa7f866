"""Scales copies.

check: test_scaled_in_place
mistake: copy-scaled
"""


def scale_down(grads, norm, max_norm):
    factor = max_norm / (norm + 1e-6)
    if math.isfinite(norm) and factor < 1.0:
        for grad in grads:
            grad = grad * factor
