"""Gathers what happens to stand in the new memory.

check: test_values
mistake: shard-forgotten
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        self.works.append(comm.all_gather(b.flat, group=self.group, async_op=True))
