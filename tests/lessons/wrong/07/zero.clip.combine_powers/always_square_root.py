"""A square root, whatever the norm type.

check: test_combine_other_norms
says: combine_powers([3, 4], 1)
"""


def combine_powers(powers, norm_type):
    return max_keeping_nan(powers) if norm_type == math.inf else math.sqrt(sum(powers))
