"""Leaves out a parameter larger than the capacity.

check: test_too_large
mistake: large-dropped
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [], 0
    for i, size in enumerate(sizes):
        if size > capacity:
            room = 0
            continue
        if not buckets or size > room:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets
