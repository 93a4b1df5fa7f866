"""Clears the shard as well.

check: test_tensors_stay
mistake: shard-lost
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        b.shard.zero_()
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
