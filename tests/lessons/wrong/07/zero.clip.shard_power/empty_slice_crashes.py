"""An empty slice has no largest element.

check: test_power_for_infinity
says: numel() == 0
"""


def shard_power(grads, norm_type):
    wides = [g.float().abs() for g in grads]
    if norm_type == math.inf:
        return max_keeping_nan([g.max().item() for g in wides])
    return float(sum((g**norm_type).sum().item() for g in wides))
