"""Forgets to keep one chunk only.

check: test_naive_sums
mistake: whole-sum
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    return ring_all_gather(own, rank, world_size, pass_on)
