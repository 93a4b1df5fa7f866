"""Asks all ranks of the job, once.

check: test_two_groups
mistake: whole-world
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    return not comm.any_rank(bad)
