"""Takes a bucket without bytes for one without parameters.

check: test_without_elements
mistake: overfull
"""


def assign_to_buckets(sizes, capacity):
    buckets, used = [], 0
    for i, size in enumerate(sizes):
        if not buckets or (used and used + size > capacity):
            buckets.append([])
            used = 0
        buckets[-1].append(i)
        used += size
    return buckets
