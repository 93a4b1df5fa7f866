"""Never starts the next.

check: test_prefetch
mistake: no-prefetch
"""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
        u.gather()
