"""Forgets that bf16 is narrow too.

check: test_power_in_16_bits
mistake: added-in-16-bits
"""


def shard_power(grads, norm_type):
    grads = [g.float() if g.dtype == torch.float16 else g for g in grads if g.numel()]
    grads = [g.abs() for g in grads]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in grads])
    return float(sum((g**norm_type).sum().item() for g in grads))
