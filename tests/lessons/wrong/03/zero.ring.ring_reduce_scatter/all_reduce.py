"""All-reduces and keeps a chunk: right, at twice the price.

check: test_sum_sends_little
mistake: all-reduce
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    own = travelling
    for _ in range(1, world_size):
        travelling = pass_on(travelling)
    return own
