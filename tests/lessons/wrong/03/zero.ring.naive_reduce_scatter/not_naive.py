"""Is the reduce-scatter itself.

check: test_naive_sends_twice
mistake: not-naive
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    return ring_reduce_scatter(flat, rank, world_size, pass_on)
