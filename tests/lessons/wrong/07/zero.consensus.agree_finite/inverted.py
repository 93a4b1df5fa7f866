"""Answers the opposite question.

check: test_ranks_agree
mistake: inverted
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return bad
