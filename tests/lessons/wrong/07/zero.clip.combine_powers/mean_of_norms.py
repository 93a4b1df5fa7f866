"""The mean of the ranks' norms.

check: test_combine
mistake: mean-of-norms
"""


def combine_powers(powers, norm_type):
    return sum(p ** (1 / norm_type) for p in powers) / len(powers)
