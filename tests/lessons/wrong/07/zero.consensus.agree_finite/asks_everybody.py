"""Asks all ranks of the job in place of the groups.

check: test_two_groups
mistake: whole-world
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    for _ in groups:
        bad = comm.any_rank(bad)
    return not bad
