"""Frozen parameters stay in memory.

check: test_frees
mistake: bucket-left-out
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.trainable:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
