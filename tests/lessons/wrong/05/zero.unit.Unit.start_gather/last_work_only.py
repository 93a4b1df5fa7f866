"""Keeps the Work of the last bucket.

check: test_starts_only
mistake: works-lost or deadlock
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works = [comm.all_gather(b.flat, group=self.group, async_op=True)]
