"""Starts the next while the unit before is still there.

check: test_two_at_most
mistake: three-at-once
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
    self.prefetcher.start_next("backward")
