"""Returns a view, which keeps the whole sum alive.

check: test_naive_keeps_one_chunk
mistake: keeps-everything
"""


def naive_reduce_scatter(flat, rank, world_size, pass_on):
    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
    return ring_all_gather(own, rank, world_size, pass_on).chunk(world_size)[rank]
