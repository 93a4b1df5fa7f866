"""Does not ask for the state first.

check: test_once
mistake: sent-twice
"""


def start_gather(self):
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.owned(b.flat).copy_(b.shard)
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
