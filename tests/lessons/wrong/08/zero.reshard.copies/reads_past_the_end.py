"""Takes as much as is wanted, whatever the slice holds.

check: test_fewer_and_more
mistake: too-long
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        first, last = max(begin, offset), offset + length
        if first < min(begin + count, last):
            plan.append(Copy(source, first - begin, first - offset, last - first))
    return plan
