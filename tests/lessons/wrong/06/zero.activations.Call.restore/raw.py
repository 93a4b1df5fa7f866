"""Takes flat tensors out of the store as they are.

check: test_arguments
mistake: wrong-shape
"""


def restore(self, saved, last):
    self.fetch()
    if self.previous is not None:
        self.previous.fetch()
    rest = iter(saved)
    found = [next(rest) if k.held is None else k.held.wait() for k in self.kept]
    return [t.detach().requires_grad_(k.requires_grad) for t, k in zip(found, self.kept)]
