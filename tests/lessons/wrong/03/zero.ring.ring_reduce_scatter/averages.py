"""Divides by the number of ranks.

check: test_sum_on_two_ranks
mistake: mean-for-sum
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    return travelling / world_size
