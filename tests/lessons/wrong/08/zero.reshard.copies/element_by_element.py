"""A copy for each element: all arrive, but one after the other.

check: test_same_ranks
mistake: element-by-element
"""


def copies(offset, length, saved):
    plan = []
    for source, (begin, count) in enumerate(saved):
        for place in range(begin, begin + count):
            if offset <= place < offset + length:
                plan.append(Copy(source, place - begin, place - offset, 1))
    return plan
