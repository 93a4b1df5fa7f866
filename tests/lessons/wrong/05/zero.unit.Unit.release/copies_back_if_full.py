"""Writes what stands in a full buffer back into the shard.

check: test_tensors_stay
mistake: shard-written
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        if self.state is State.FULL:
            b.shard.copy_(b.owned(b.flat))
        b.flat.untyped_storage().resize_(0)
        for p, name in zip(b.params, b.names):
            mark_released(p, name)
    self.state = State.SHARDED
