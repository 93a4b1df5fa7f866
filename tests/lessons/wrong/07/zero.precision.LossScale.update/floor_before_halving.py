"""Halves whatever is above 1, also 1.5.

check: test_in_a_row
mistake: no-floor
"""


def update(self, overflow):
    if overflow:
        if self.scale > 1:
            self.scale /= 2
        self.good_steps = 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
