"""Adds in a copy of the whole, of which the result is a view.

check: test_sum_input_left_alone
mistake: keeps-everything
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.clone().chunk(world_size)
    for round in range(1, world_size):
        arrived = pass_on(chunks[(rank - round) % world_size])
        chunks[(rank - 1 - round) % world_size].add_(arrived)
    return chunks[rank]
