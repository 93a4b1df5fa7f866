"""Frees memory into which data is on its way.

check: test_waits
mistake: no-wait
"""


def release(self):
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
