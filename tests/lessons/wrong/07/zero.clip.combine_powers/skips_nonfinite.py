"""Leaves out ranks whose power is not finite.

check: test_combine_nonfinite
says: combine_powers([1, inf], 2)
"""


def combine_powers(powers, norm_type):
    powers = [p for p in powers if math.isfinite(p)]
    return max(powers) if norm_type == math.inf else sum(powers) ** (1 / norm_type)
