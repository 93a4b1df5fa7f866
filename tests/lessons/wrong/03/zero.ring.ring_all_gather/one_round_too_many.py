"""Goes on until its own shard has come back.

check: test_gather_sends_little
mistake: one-round-too-many
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    shards = {}
    travelling = shard
    for round in range(1, world_size + 1):
        travelling = pass_on(travelling)
        shards[(rank - round) % world_size] = travelling
    return torch.cat([shards[r] for r in range(world_size)])
