"""Gives each parameter an empty tensor; the buffer stays.

check: test_frees
mistake: not-freed
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        for name, p in zip(b.names, b.params):
            p.data = p.data.new_empty(0)
            mark_released(p, name)
    self.state = State.SHARDED
