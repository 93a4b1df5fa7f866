"""Starts the next before the unit is open.

check: test_prefetch
mistake: no-prefetch
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
