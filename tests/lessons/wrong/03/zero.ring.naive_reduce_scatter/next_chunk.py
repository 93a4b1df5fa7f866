"""Keeps the chunk of the next rank.

check: test_naive_sums
mistake: wrong-owner
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    everything = ring_all_gather(own, rank, world_size, pass_on)
    return everything.chunk(world_size)[(rank + 1) % world_size].clone()
