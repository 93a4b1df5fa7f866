"""Gathers the owner of a tied weight and does not open it: if it is frozen, nobody closes it.

check: test_all_closed
mistake: left-in-memory
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    call.unit.open = True
    for u in call.unit.needs:
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
