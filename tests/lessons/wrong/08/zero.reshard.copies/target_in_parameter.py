"""Counts target from the beginning of the parameter.

check: test_same_ranks
mistake: target-not-relative
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first - begin, first, last - first))
    return plan
