"""Tells the order of backward as that of forward.

check: test_order
mistake: order-not-told
"""


def before_backward(self, call):
    self.prefetcher.needed("forward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
