"""Adds the maxima.

check: test_combine_other_norms
mistake: sum-for-max
"""


def combine_powers(powers, norm_type):
    return sum(powers) if norm_type == math.inf else sum(powers) ** (1 / norm_type)
