"""Does not note the call: the unit is closed before its input has a gradient.

check: test_stays
mistake: closed-too-early
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
