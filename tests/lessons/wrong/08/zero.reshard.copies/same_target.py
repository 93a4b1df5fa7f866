"""Puts every slice to the beginning.

check: test_fewer_and_more
mistake: target-not-relative
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first - begin, 0, last - first))
    return plan
