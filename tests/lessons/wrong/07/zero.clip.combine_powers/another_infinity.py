"""Compares with math.inf by identity; float("inf") is another object.

check: test_combine_other_norms
mistake: root-of-inf
"""


def combine_powers(powers, norm_type):
    if norm_type is math.inf:
        return max_keeping_nan(powers)
    total = sum(powers)
    return total ** (1.0 / norm_type) if math.isfinite(total) else total
