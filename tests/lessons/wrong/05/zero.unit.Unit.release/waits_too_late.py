"""Frees the memory, then waits for the data.

check: test_waits
mistake: no-wait
"""


def release(self):
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    for work in self.works:
        work.wait()
    self.works = []
    self.state = State.SHARDED
