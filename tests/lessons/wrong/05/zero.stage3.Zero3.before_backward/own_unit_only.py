"""Forgets the owner of a tied weight.

check: test_here
mistake: owner-forgotten
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in [call.unit]:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
