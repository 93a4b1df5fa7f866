"""Fetches nothing; every wait is a whole read.

check: test_ahead
mistake: not-ahead
"""


def restore(self, saved, last):
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
