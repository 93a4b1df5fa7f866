"""Looks whether the bucket is full after putting one in, so it becomes overfull.

check: test_neighbours
mistake: overfull
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [[]], capacity
    for i, size in enumerate(sizes):
        if room < 0:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets
