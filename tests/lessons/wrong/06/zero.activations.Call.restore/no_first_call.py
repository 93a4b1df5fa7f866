"""Expects that there is always a previous call.

check: test_arguments
mistake: previous
"""


def restore(self, saved, last):
    self.fetch()
    self.previous.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
