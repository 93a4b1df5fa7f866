"""Counts `saved` as if autograd had held all arguments.

check: test_arguments
mistake: wrong-argument
"""


def restore(self, saved, last):
    self.fetch()
    if self.previous is not None:
        self.previous.fetch()
    return [
        k.restore(saved[i % len(saved)] if k.held is None else None, last)
        for i, k in enumerate(self.kept)
    ]
