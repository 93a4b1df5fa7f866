"""Only the last slice counts.

check: test_ranks_agree
says: inf in the first of two slices
"""


def agree_finite(slices, groups):
    bad = False
    for s in slices:
        if s.param.grad is not None:
            bad = not all_finite(s.param.grad)
    for group in groups:
        bad = comm.any_rank(bad, group=group, name="overflow")
    return not bad
