"""Marks the parameters, and keeps their memory.

check: test_frees
mistake: not-freed
"""


def release(self):
    if self.state is State.GATHERING:
        self.gather()
    for b in self.buckets:
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
