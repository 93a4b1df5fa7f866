"""Gathers all inputs and adds them: N times the bytes.

check: test_naive_sends_twice
mistake: sends-everything
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    everything = ring_all_gather(flat, rank, world_size, pass_on)
    total = sum(everything.chunk(world_size))
    return total.chunk(world_size)[rank].clone()
