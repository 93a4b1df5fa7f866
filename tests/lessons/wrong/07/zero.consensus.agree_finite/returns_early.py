"""A rank that has found inf returns at once, and the others wait for it.

check: test_ranks_agree
mistake: not-agreed
"""


def agree_finite(slices, groups):
    for s in slices:
        if s.param.grad is not None and not all_finite(s.param.grad):
            return False
    bad = False
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return not bad
