"""Takes the absolute values in place.

check: test_power_only_looks
mistake: gradients-changed
"""


def shard_power(grads, norm_type):
    grads = [g.to(_wide(g)).abs_() for g in grads if g.numel()]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in grads])
    return float(sum((g**norm_type).sum().item() for g in grads))
