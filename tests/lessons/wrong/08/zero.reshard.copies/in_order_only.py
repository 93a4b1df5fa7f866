"""Believes that the slices come in order.

check: test_any_order
says: copies(4, 8
"""


def copies(offset, length, saved):
    plan, done = [], 0
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            plan.append(Copy(source, first - begin, done, last - first))
            done += last - first
    return plan
