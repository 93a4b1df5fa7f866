"""Counts start from the beginning of the parameter.

check: test_same_ranks
mistake: start-not-relative
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first, first - offset, last - first))
    return plan
