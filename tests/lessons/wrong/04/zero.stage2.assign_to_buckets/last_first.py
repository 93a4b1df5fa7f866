"""Begins with the last size.

check: test_neighbours
mistake: wrong-order
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [], 0
    for i in reversed(range(len(sizes))):
        if not buckets or sizes[i] > room:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= sizes[i]
    return buckets
