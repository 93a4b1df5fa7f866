"""Gives each slice new memory; the tensor of which it was a view stays as it is.

check: test_scaled_in_place
mistake: new-memory
"""


def scale_down(grads, norm, max_norm):
    factor = max_norm / (norm + 1e-6)
    if math.isfinite(norm) and factor < 1.0:
        for grad in grads:
            grad.data = grad * factor
