"""Takes the rank in the world for the place in the group.

check: test_group
mistake: rank-in-the-world
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        n = b.shard.numel()
        r = comm.rank()
        b.flat[r * n : (r + 1) * n].copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
    self.state = State.GATHERING
