"""Squares, whatever the norm type.

check: test_power_of_one_slice
mistake: always-two
"""


def shard_power(grads, norm_type):
    grads = list(grads)
    if norm_type == math.inf:
        return max_keeping_nan([g.abs().max().item() for g in grads if g.numel()])
    return sum(g.float().square().sum().item() for g in grads)
