"""Sums |g|^inf.

check: test_power_for_infinity
mistake: power-of-inf
"""


def shard_power(grads, norm_type):
    return float(sum((g.float().abs() ** norm_type).sum().item() for g in grads))
