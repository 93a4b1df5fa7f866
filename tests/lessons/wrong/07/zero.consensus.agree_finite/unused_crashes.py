"""Looks at the gradient of a parameter that has none.

check: test_ranks_agree
says: NoneType
"""


def agree_finite(slices, groups):
    bad = not all(all_finite(s.param.grad) for s in slices)
    for group in groups:
        bad = comm.any_rank(bad, group=group)
    return not bad
