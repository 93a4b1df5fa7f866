"""Forgets the root.

check: test_combine
mistake: root-forgotten
"""


def combine_powers(powers, norm_type):
    return max_keeping_nan(powers) if norm_type == math.inf else sum(powers)
