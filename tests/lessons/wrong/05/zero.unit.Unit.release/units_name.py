"""Marks the parameters with the name of the unit.

check: test_marks
mistake: wrong-name
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, self.name)
    self.state = State.SHARDED
