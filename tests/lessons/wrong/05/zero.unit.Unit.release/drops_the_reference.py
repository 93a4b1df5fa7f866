"""An empty tensor in place of the buffer: autograd and the parameters keep the old one.

check: test_frees
mistake: reference-dropped
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        b.flat = b.flat.new_empty(b.flat.shape)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
