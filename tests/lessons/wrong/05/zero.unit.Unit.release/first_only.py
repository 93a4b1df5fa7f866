"""Marks the first parameter of each bucket.

check: test_marks
mistake: not-marked
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        mark_released(b.params[0], b.names[0])
    self.state = State.SHARDED
