"""Copies every slice.

check: test_same_ranks
mistake: takes-all
"""


def copies(offset, length, saved):
    return [Copy(i, 0, begin, count) for i, (begin, count) in enumerate(saved)]
