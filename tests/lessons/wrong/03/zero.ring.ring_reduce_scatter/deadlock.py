"""The last rank does not take part in the last round.

check: test_sum_on_two_ranks
says: equally many rounds
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    rounds = world_size - 1 if rank < world_size - 1 else world_size - 2
    for round in range(1, rounds + 1):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    return travelling
