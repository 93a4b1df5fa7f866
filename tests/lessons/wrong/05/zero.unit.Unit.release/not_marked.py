"""Frees the memory, and lets everybody read it.

check: test_marks
mistake: not-marked
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            pass
    self.state = State.SHARDED
