"""A rank that owns nothing does not take part.

check: test_ranks_agree
mistake: deadlock
"""


def agree_finite(slices, groups):
    if not slices:
        return True
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return not bad
