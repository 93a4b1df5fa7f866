"""Returns sizes.

check: test_neighbours
mistake: sizes-returned
"""


def assign_to_buckets(sizes, capacity):
    buckets, room = [], 0
    for size in sizes:
        if not buckets or size > room:
            buckets.append([])
            room = capacity
        buckets[-1].append(size)
        room -= size
    return buckets
