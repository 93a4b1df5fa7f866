"""Passes on the whole result, filled so far.

check: test_gather_sends_little
mistake: sends-everything
"""


def ring_all_gather(shard, rank, world_size, pass_on):
    whole = torch.zeros(world_size * shard.numel(), dtype=shard.dtype)
    own = slice(rank * shard.numel(), (rank + 1) * shard.numel())
    whole[own] = shard
    travelling = whole
    for _ in range(1, world_size):
        arrived = pass_on(travelling)
        travelling = arrived.clone()
        travelling[own] = shard
    return travelling
