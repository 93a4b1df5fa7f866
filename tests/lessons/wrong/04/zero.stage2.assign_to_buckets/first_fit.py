"""Puts each one into the first bucket that has room.

check: test_too_large
mistake: reordered
"""


def assign_to_buckets(sizes, capacity):
    buckets, rooms = [], []
    for i, size in enumerate(sizes):
        for k, room in enumerate(rooms):
            if size <= room:
                buckets[k].append(i)
                rooms[k] -= size
                break
        else:
            buckets.append([i])
            rooms.append(capacity - size)
    return buckets
