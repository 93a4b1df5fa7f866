"""Scales the first slice only.

check: test_all_slices_scaled
mistake: slice-left-out
says: slice 2
"""


def scale_down(grads, norm, max_norm):
    factor = max_norm / (norm + 1e-6)
    if math.isfinite(norm) and factor < 1.0:
        next(iter(grads)).mul_(factor)
