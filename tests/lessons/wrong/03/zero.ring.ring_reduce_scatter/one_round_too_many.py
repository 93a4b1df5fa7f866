"""Goes round once more, with a chunk that it throws away.

check: test_sum_sends_little
mistake: one-round-too-many
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    pass_on(travelling)
    return travelling
