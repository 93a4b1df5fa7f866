"""Fetches its own tensors only.

check: test_ahead
mistake: not-ahead
"""


def restore(self, saved, last):
    self.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
