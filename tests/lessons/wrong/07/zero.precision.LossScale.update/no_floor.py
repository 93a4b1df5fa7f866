"""Falls below 1.

check: test_in_a_row
mistake: no-floor
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = self.scale / 2, 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
