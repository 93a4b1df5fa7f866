"""Keeps counting over an overflow.

check: test_in_a_row
mistake: not-in-a-row
"""


def update(self, overflow):
    if overflow:
        self.scale = max(self.scale / 2, 1.0)
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
