"""Puts this rank's part of the flat buffer into b.shard: a view of what is freed next.

check: test_frees
mistake: shard-replaced
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.shard = b.owned(b.flat)
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
