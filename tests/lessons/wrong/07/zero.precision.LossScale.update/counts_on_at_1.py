"""Does not start the count again where the scale cannot fall any more.

check: test_in_a_row
mistake: not-in-a-row
"""


def update(self, overflow):
    if overflow:
        if self.scale > 1.0:
            self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale, self.good_steps = self.scale * 2, 0
