"""Stops at the first slice that has something.

check: test_fewer_and_more
mistake: one-slice
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), min(begin + count, offset + length)
        if first < last:
            return [Copy(source, first - begin, first - offset, last - first)]
    return []
