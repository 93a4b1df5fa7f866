"""Sends its own shard in every round, so only the neighbour is ever heard.

check: test_gather_on_more_ranks
mistake: not-passed-on
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    shards = {rank: shard}
    for round in range(1, world_size):
        shards[(rank - round) % world_size] = pass_on(shard)
    return torch.cat([shards[r] for r in range(world_size)])
