"""Passes whole tensors round and adds its chunk of each.

check: test_sum_sends_little
mistake: sends-everything
"""


def ring_reduce_scatter(flat, rank, world_size, pass_on):
    travelling = flat.clone()
    total = flat.chunk(world_size)[rank].clone()
    for _ in range(1, world_size):
        travelling = pass_on(travelling)
        total = total + travelling.chunk(world_size)[rank]
    return total
