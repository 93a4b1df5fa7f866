"""Asks only whether it is on its way.

check: test_once
mistake: sent-twice
"""


def start_gather(self):
    if self.state is State.GATHERING:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
