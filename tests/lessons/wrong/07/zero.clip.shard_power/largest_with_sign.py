"""Takes the largest value for infinity, not the largest absolute value.

check: test_power_for_infinity
mistake: sign-kept
"""


def shard_power(grads, norm_type):
    grads = [g.float() for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in grads])
    return float(sum(g.abs().pow(norm_type).sum().item() for g in grads))
