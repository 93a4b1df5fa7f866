"""Lets the sum travel in fp64: twice the bytes.

check: test_sum_sends_little
says: bytes sent by each
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.double().chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    return travelling.to(flat.dtype)
