"""Doubles one step late.

check: test_doubled
mistake: one-late
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
        return
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
    else:
        self.good_steps += 1
