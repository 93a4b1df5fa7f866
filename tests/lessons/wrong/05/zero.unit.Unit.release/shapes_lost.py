"""Frees the memory, and the parameters forget their shapes.

check: test_tensors_stay
mistake:
says: shapes
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            p.data = p.data.new_empty(0)
            mark_released(p, name)
    self.state = State.SHARDED
