"""Joins the shards in the order in which they arrive.

check: test_gather_on_two_ranks
mistake: arrival-order
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    shards = [shard]
    for _ in range(1, world_size):
        shards.append(pass_on(shards[-1]))
    return torch.cat(shards)
