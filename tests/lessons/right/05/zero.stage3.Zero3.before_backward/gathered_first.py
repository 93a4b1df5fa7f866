"""Gathers before it opens: nothing else happens in between."""


def before_backward(self, call):
    self.prefetcher.needed("backward", call.unit)
    for u in call.unit.needs:
        u.gather()
    for u in call.unit.needs:
        u.open = True
        if call.waiting:
            u.backward_calls.add(call)
    if sum(u.open for u in self.units) == 1:
        self.prefetcher.start_next("backward")
