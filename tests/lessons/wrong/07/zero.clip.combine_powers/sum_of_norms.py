"""The sum of the ranks' norms.

check: test_combine
mistake: sum-of-norms
"""


def combine_powers(powers, norm_type):
    return sum(p ** (1 / norm_type) for p in powers)
