"""Averages the powers, as if the ranks held the same parameters.

check: test_combine
mistake: averaged
"""


def combine_powers(powers, norm_type):
    return (sum(powers) / len(powers)) ** (1 / norm_type)
