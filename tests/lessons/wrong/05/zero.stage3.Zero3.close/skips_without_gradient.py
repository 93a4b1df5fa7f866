"""Sends nothing where this rank has no gradient: the ranks that have one wait for it.

check: test_without_gradients
mistake: skipped-without-gradient
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        if bucket.grad is not None:
            self.flight.start(bucket)
    self._release(unit)
