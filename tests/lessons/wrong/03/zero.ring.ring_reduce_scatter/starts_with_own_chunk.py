"""Starts with its own chunk, so the sum ends one rank too early.

check: test_sum_on_two_ranks
mistake: wrong-owner
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[rank].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - round) % world_size]
    return travelling
