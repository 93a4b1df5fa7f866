"""Scales by NaN.

check: test_nonfinite_norm
mistake: nonfinite-scaled
"""


def scale_down(grads, norm, max_norm):
    factor = max_norm / (norm + 1e-6)
    if norm != math.inf and not factor >= 1.0:
        for grad in grads:
            grad.mul_(factor)
