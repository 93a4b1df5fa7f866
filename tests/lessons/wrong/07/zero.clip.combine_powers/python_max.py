"""Python's max() loses NaN.

check: test_combine_nonfinite
mistake: nonfinite-lost
"""


def combine_powers(powers, norm_type):
    return max(powers) if norm_type == math.inf else sum(powers) ** (1 / norm_type)
