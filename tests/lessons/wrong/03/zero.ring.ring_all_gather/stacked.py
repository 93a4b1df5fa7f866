"""Stacks the shards instead of joining them.

check: test_gather_on_two_ranks
mistake: wrong-shape
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    shards = {rank: shard}
    travelling = shard
    for round in range(1, world_size):
        travelling = pass_on(travelling)
        shards[(rank - round) % world_size] = travelling
    return torch.stack([shards[r] for r in range(world_size)])
