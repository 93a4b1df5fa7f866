"""Everything travels as fp32.

check: test_sum_input_left_alone
mistake: another-dtype
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    chunks = flat.float().chunk(world_size)
    travelling = chunks[(rank - 1) % world_size].clone()
    for round in range(1, world_size):
        travelling = pass_on(travelling) + chunks[(rank - 1 - round) % world_size]
    return travelling.to(flat.dtype)
