"""Gathers the whole model.

check: test_all_closed
mistake: waits-for-nothing
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in self.units:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
