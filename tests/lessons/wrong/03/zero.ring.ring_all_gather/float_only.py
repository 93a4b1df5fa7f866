"""Collects in fp32, whatever the dtype.

check: test_gather_input_left_alone
mistake: wrong-dtype
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    whole = torch.empty(world_size, shard.numel())
    whole[rank] = shard
    travelling = shard
    for round in range(1, world_size):
        travelling = pass_on(travelling)
        whole[(rank - round) % world_size] = travelling
    return whole.flatten()
