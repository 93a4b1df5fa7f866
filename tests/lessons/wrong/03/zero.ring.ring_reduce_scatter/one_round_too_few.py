"""Stops after N-2 rounds; with two ranks nothing is sent.

check: test_sum_on_two_ranks
mistake: nothing-added
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size - 1):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    return travelling
