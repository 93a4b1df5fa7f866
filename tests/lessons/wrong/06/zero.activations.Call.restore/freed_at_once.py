"""Frees what it has fetched, also if another pass follows.

check: test_file
mistake: freed-early
"""


def restore(self, saved, last):
    self.fetch()
    if self.previous is not None:
        self.previous.fetch()
    rest = iter(saved)
    inputs = [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
    for k in self.kept:
        if k.held is not None:
            k.held.free()
    return inputs
