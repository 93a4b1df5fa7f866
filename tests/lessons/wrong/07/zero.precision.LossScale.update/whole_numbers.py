"""Divides without a remainder.

check: test_in_a_row
mistake: rounded
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(1.0, self.scale // 2), 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
