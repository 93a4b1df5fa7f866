"""Makes fp32 of everything, also of what is wider.

check: test_power_in_16_bits
mistake: fp64-narrowed
"""


def shard_power(grads, norm_type):
    grads = [g.float().abs() for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in grads])
    return float(sum((g**norm_type).sum().item() for g in grads))
