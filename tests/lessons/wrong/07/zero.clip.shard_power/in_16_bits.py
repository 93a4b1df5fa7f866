"""Adds 16-bit gradients in 16 bits.

check: test_power_in_16_bits
mistake: added-in-16-bits
"""


def shard_power(grads, norm_type):
    grads = [g.abs() for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in grads])
    return float(sum((g**norm_type).sum().item() for g in grads))
