"""Looks whether the shard is up to date, as it always is; a second release reads freed memory.

check: test_alone
mistake: twice
says: b.shard is always up to date
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        if not torch.equal(b.owned(b.flat), b.shard):
            self.stale = True
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
