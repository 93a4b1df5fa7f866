"""Looks for NaN, not for inf.

check: test_ranks_agree
says: inf on rank 1
"""


def agree_finite(slices, groups):
    bad = any(bool(s.param.grad.isnan().any()) for s in slices if s.param.grad is not None)
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return not bad
