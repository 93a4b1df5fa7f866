"""Goes through the slices twice, which a generator does not allow.

check: test_all_slices_scaled
mistake: slice-left-out
says: slice 0
"""


def scale_down(grads, norm, max_norm):
    count = sum(1 for _ in grads)
    factor = max_norm / (norm + 1e-6)
    if count and math.isfinite(norm) and factor < 1.0:
        for grad in grads:
            grad.mul_(factor)
