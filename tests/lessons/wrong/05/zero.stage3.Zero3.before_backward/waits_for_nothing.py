"""Notes the call although no input needs a gradient.

check: test_all_closed
mistake: waits-for-nothing
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
