"""Says FULL while the data is on its way.

check: test_starts_only
mistake:
says: self.state
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.FULL
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
