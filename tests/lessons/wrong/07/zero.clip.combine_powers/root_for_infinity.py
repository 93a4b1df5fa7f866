"""Treats infinity like the others: anything to the power 1/inf is 1.

check: test_combine_other_norms
mistake: root-of-inf
"""


def combine_powers(powers, norm_type):
    return sum(powers) ** (1 / norm_type)
