"""Asks the first group only.

check: test_two_groups
mistake: second-group-not-told
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    return not comm.any_rank(bad, group=groups[0])
