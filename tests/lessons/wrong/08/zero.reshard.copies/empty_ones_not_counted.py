"""Numbers the slices without the empty ones.

check: test_any_order
mistake: wrong-source
"""


def copies(offset, length, saved):
    result = []
    for i, (o, n) in enumerate([s for s in saved if s[1]]):
        a, b = max(o, offset), min(o + n, offset + length)
        if a < b:
            result.append(Copy(i, a - o, a - offset, b - a))
    return result
