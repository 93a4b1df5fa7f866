"""Notes the call on the unit itself, and not on the owners of its tied weights.

check: test_stays
mistake: closed-too-early
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    if call.waiting:
        call.unit.backward_calls.add(call)
    for u in call.unit.needs:
        u.open = True
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
