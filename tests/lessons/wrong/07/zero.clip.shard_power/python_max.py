"""Python's max() loses NaN.

check: test_power_of_inf_and_nan
mistake: nonfinite-lost
"""


def shard_power(grads, norm_type):
    grads = [g.to(torch.promote_types(g.dtype, torch.float32)).abs() for g in grads if g.numel()]
    if norm_type == math.inf:
        return max([g.max().item() for g in grads], default=0.0)
    return float(sum((g**norm_type).sum().item() for g in grads))
