"""Looks at the sum alone, which may overflow although every number is finite.

check: test_ranks_agree
says: finite numbers whose sum overflows
"""


def agree_finite(slices, groups):
    bad = not all(bool(s.param.grad.sum().isfinite()) for s in slices if s.param.grad is not None)
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return not bad
