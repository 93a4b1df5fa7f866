"""Allocates a shard for each rank of the world, also in a smaller group.

check: test_group
mistake: size-of-the-world
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.shard.nbytes * comm.world_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
    self.state = State.GATHERING
