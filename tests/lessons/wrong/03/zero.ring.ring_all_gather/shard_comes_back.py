"""Forgets the copy when there is one rank.

check: test_gather_input_left_alone
mistake: shares-memory
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    if world_size == 1:
        return shard
    shards = {rank: shard}
    travelling = shard
    for round in range(1, world_size):
        travelling = pass_on(travelling)
        shards[(rank - round) % world_size] = travelling
    return torch.cat([shards[r] for r in range(world_size)])
