"""Gathers in the world, whatever group the unit belongs to.

check: test_group
mistake: whole-world
says: self.group must be passed on to comm.all_gather
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, async_op=True))
