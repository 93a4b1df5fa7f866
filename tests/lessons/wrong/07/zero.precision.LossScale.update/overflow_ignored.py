"""Counts every step as a good one.

check: test_halved
mistake: unchanged
"""


def update(self, overflow):
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
