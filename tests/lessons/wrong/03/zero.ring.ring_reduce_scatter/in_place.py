"""Adds into flat itself.

check: test_sum_input_left_alone
mistake: input-changed
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    for round in range(1, world_size):
        arrived = pass_on(chunks[(rank - round) % world_size])
        chunks[(rank - 1 - round) % world_size].add_(arrived)
    return chunks[rank].clone()
