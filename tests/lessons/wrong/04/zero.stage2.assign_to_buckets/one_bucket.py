"""Everything in one bucket.

check: test_neighbours
mistake: one-bucket
"""


def assign_to_buckets(sizes, capacity):
    return [list(range(len(sizes)))] if sizes else []
