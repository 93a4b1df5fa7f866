"""Never the last time, so parts stay beside the whole.

check: test_last
mistake: last-ignored
"""


def restore(self, saved, last):
    self.fetch()
    if self.previous is not None:
        self.previous.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, False) for k in self.kept]
