"""Uses the first rank's power alone.

check: test_combine
mistake: own-shard
"""


def combine_powers(powers, norm_type):
    return powers[0] ** (1 / norm_type)
