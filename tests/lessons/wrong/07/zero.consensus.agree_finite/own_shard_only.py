"""Answers for its own shard, without asking the others.

check: test_ranks_agree
mistake: not-agreed
"""


def agree_finite(slices, groups):
    return all(all_finite(s.param.grad) for s in slices if s.param.grad is not None)
