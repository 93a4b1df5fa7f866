"""Averages.

check: test_naive_sums
mistake: mean-for-sum
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    everything = ring_all_gather(own, rank, world_size, pass_on) / world_size
    return everything.chunk(world_size)[rank].clone()
