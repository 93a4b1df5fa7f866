"""Drops the works without waiting for them.

check: test_waits
mistake: no-wait
"""


def release(self):
    if self.state is State.GATHERING:
        self.works = []
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
