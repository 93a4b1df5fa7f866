"""Fetches all earlier calls' tensors: all are in memory at once.

check: test_ahead
mistake: all-at-once
"""


def restore(self, saved, last):
    call = self
    while call is not None:
        call.fetch()
        call = call.previous
    rest = iter(saved)
    return [k.restore(next(rest) if k.held is None else None, last) for k in self.kept]
