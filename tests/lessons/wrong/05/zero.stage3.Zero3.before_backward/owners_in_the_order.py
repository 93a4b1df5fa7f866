"""Puts the owners of tied weights into the order as well.

check: test_order
mistake: owners-told
"""


def before_backward(self, call):
    for u in call.unit.needs:
        self.prefetcher.needed("backward", u)
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
