"""Tells the second group what it found itself, not what it has learnt.

check: test_two_groups
mistake: second-group-not-told
"""


def agree_finite(slices, groups):
    mine = not all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
    answers = [comm.any_rank(mine, group=group) for group in groups]
    return not any(answers)
