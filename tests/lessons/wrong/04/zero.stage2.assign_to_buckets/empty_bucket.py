"""Begins with an empty bucket.

check: test_too_large
mistake: empty-bucket
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [[]], capacity
    for i, size in enumerate(sizes):
        if size > room:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets
