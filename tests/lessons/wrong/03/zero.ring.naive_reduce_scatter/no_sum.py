"""Gathers its own chunk without the sum.

check: test_naive_sums
mistake: nothing-added
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = flat.chunk(world_size)[rank].clone()
    everything = ring_all_gather(own, rank, world_size, pass_on)
    return everything.chunk(world_size)[rank].clone()
