"""Makes a whole number of the doubled scale.

check: test_doubled
mistake: rounded
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = float(int(self.scale * 2)), 0
