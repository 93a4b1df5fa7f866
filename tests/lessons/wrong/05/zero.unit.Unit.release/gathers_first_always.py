"""Gathers even what is released already.

check: test_alone
mistake: collective
"""


def release(self):
    if hasattr(self, "works"):
        self.gather()
    for b in self.buckets:
        b.flat.untyped_storage().resize_(0)
        for name, p in zip(b.names, b.params):
            mark_released(p, name)
    self.state = State.SHARDED
