"""Only ever goes down.

check: test_doubled
mistake: never-grows
"""


def update(self, overflow):
    if overflow:
        self.scale, self.good_steps = max(self.scale / 2, 1.0), 0
    else:
        self.good_steps += 1
