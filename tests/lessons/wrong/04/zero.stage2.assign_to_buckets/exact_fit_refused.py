"""Refuses what fits exactly.

check: test_neighbours
mistake: one-each
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [], 0
    for i, size in enumerate(sizes):
        if not buckets or size >= room:
            buckets.append([])
            room = capacity
        buckets[-1].append(i)
        room -= size
    return buckets
