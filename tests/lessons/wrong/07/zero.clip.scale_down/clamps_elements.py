"""Limits every element instead of the norm.

check: test_scaled_in_place
mistake: own-norm
"""


def scale_down(grads, norm, max_norm):
    for grad in grads:
        if math.isfinite(norm):
            grad.clamp_(-max_norm, max_norm)
