"""Finds a slice by its offset; an empty one has the same.

check: test_any_order
mistake: wrong-source
"""


def copies(offset, length, saved):
    result = []
    where = {o: i for i, (o, n) in enumerate(saved)}
    for o, n in saved:
        a, b = max(o, offset), min(o + n, offset + length)
        if a < b:
            result.append(Copy(where[o], a - o, a - offset, b - a))
    return result
