"""Drops the gradients as well.

check: test_tensors_stay
mistake: grad-lost
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for p, name in zip(b.params, b.names):
            mark_released(p, name)
            p.grad = None
    self.state = State.SHARDED
