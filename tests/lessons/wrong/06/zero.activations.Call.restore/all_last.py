"""Always the last time, so a second pass finds nothing.

check: test_last
mistake: last-ignored
"""


def restore(self, saved, last):
    self.fetch()
    if self.previous is not None:
        self.previous.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, True) for k in self.kept]
