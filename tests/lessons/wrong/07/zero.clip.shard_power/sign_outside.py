"""Takes the absolute value of the power, which a negative number does not have for p = 1.5.

check: test_power_of_one_slice
mistake: sign-kept
"""


def shard_power(grads, norm_type):
    grads = [g.to(_wide(g)) for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.abs().max().item() for g in grads])
    return float(sum((g**norm_type).abs().sum().item() for g in grads))
