"""Does not grow above 2^32.

check: test_doubled
mistake: capped
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = min(self.scale * 2, 2.0**32), 0
