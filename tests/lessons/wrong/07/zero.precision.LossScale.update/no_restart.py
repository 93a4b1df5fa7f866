"""Never starts to count again, so it doubles once and never more.

check: test_doubled
mistake: no-restart
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
        return
    self.good_steps += 1
    if self.good_steps == self.growth_interval:
        self.scale *= 2
