"""Zeros, the own shard, and a sum over the ranks: twice the bytes.

check: test_starts_only
mistake: waits
"""


def start_gather(self):
    if self.state is not State.SHARDED:
        return
    self.state = State.GATHERING
    for b in self.buckets:
        b.flat.untyped_storage().resize_(b.flat.numel() * b.flat.element_size())
        b.flat.zero_()
        b.owned(b.flat).copy_(b.shard)
        comm.all_reduce(b.flat, op="sum", group=self.group)
