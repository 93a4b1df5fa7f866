"""Gathers the last bucket first.

check: test_starts_only
mistake: another-order
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    for b in reversed(self.buckets):
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
    self.state = State.GATHERING
