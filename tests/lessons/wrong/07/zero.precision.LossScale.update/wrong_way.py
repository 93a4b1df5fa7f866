"""Doubles after an overflow.

check: test_halved
mistake: wrong-way
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = self.scale * 2, 0
