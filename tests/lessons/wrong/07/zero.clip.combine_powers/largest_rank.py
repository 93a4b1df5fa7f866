"""The norm of the largest shard.

check: test_combine
mistake: largest-rank
"""


def combine_powers(powers, norm_type):
    return max(powers) ** (1 / norm_type)
