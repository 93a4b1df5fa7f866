"""Asks for the next unit before the one that is needed now.

check: test_prefetch
mistake: next-before-own
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
    for u in call.unit.needs:
        u.gather()
