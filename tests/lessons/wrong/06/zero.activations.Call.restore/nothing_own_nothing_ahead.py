"""Fetches ahead only if it has something in the store itself.

check: test_ahead_of_nothing
mistake: chain-broken
"""


def restore(self, saved, last):
    if any(k.held is not None for k in self.kept):
        self.fetch()
        if self.previous is not None:
            self.previous.fetch()
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
