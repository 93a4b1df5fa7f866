"""Makes a new shard from the flat buffer: the optimizer goes on with the old one.

check: test_frees
mistake: shard-replaced
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.shard = b.owned(b.flat).clone() if b.flat.untyped_storage().nbytes() else b.shard
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
