"""Starts to gather, and does not wait.

check: test_here
mistake: only-started
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.start_gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
