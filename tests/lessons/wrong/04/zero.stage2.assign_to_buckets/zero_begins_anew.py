"""Begins a new bucket as long as the last one has no bytes.

check: test_without_elements
mistake: empty-alone
"""


def assign_to_buckets(sizes, capacity):
    buckets, used = [], 0
    for i, size in enumerate(sizes):
        if used == 0 or used + size > capacity:
            buckets.append([])
            used = 0
        buckets[-1].append(i)
        used += size
    return buckets
