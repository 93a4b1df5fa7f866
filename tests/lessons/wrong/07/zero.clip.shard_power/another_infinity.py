"""Compares with math.inf by identity; float("inf") is another object.

check: test_power_for_infinity
mistake: power-of-inf
"""


def shard_power(grads, norm_type):
    grads = [g for g in grads if g.numel()]
    norms = [torch.linalg.vector_norm(g, norm_type, dtype=_wide(g)).item() for g in grads]
    if norm_type is math.inf:
        return max_keeping_nan(norms)
    return math.fsum(n**norm_type for n in norms)
