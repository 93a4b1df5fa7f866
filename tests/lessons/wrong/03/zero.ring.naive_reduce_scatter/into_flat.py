"""Writes the whole sum into flat, as all_reduce does.

check: test_naive_keeps_one_chunk
mistake: input-changed
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    flat.copy_(ring_all_gather(own, rank, world_size, pass_on))
    return flat.chunk(world_size)[rank].clone()
