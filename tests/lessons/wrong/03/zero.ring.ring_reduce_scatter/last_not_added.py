"""Returns what arrives last without its own part.

check: test_sum_on_two_ranks
mistake: part-missing
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        arrived = pass_on(travelling)
        travelling = arrived + chunks[(rank - 1 - round) % world_size]
    return arrived
