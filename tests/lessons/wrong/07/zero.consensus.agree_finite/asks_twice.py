"""Asks each group twice, to be sure.

check: test_two_groups
mistake: asked-twice
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    for _ in range(2):
        for group in groups:
            bad = comm.any_rank(bad, group=group)
    return not bad
