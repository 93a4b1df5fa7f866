"""Scales by max_norm / inf, which is zero: the bad step becomes a step without gradient.

check: test_nonfinite_norm
mistake: nonfinite-scaled
"""


def scale_down(grads, norm, max_norm):
    factor = max_norm / (norm + 1e-6)
    if factor < 1.0:
        for grad in grads:
            grad.mul_(factor)
