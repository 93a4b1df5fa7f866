"""Asks for the previous call's tensors first.

check: test_ahead
mistake: own-last
"""


def restore(self, saved, last):
    if self.previous is not None:
        self.previous.fetch()
    self.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
