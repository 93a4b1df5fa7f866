"""Plans copies of nothing.

check: test_same_ranks
mistake: empty-copy
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first <= last:
            plan.append(Copy(source, first - begin, first - offset, last - first))
    return plan
