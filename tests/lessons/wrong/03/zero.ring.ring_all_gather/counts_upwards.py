"""Takes what arrives for the shard of the next rank, not of the one before.

check: test_gather_on_more_ranks
mistake: wrong-way
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    shards = {rank: shard}
    travelling = shard
    for round in range(1, world_size):
        travelling = pass_on(travelling)
        shards[(rank + round) % world_size] = travelling
    return torch.cat([shards[r] for r in range(world_size)])
