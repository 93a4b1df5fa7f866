"""Each slice overwrites the one before.

check: test_power_of_several_slices
mistake: last-slice-only
"""


def shard_power(grads, norm_type):
    power = 0.0
    for grad in grads:
        if not grad.numel():
            continue
        wide = grad.float().abs()
        power = wide.max().item() if norm_type == math.inf else (wide**norm_type).sum().item()
    return power
