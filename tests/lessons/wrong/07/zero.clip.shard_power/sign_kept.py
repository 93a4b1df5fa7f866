"""g^p without the absolute value.

check: test_power_of_one_slice
mistake: sign-kept
"""


def shard_power(grads, norm_type):
    grads = [g for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.float().max().item() for g in grads])
    return float(sum((g.float() ** norm_type).sum().item() for g in grads))
