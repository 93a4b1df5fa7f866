"""A bucket for every parameter.

check: test_neighbours
mistake: one-each
"""


def assign_to_buckets(sizes, capacity):
    return [[i] for i in range(len(sizes))]
