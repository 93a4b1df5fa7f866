"""Thinks that a unit has one input.

check: test_stays
mistake: closed-too-early
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting == 1:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
