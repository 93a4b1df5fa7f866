"""Forgets that _release asks whether the unit is open.

check: test_shut
mistake: still-open
"""


def close(self, unit):
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        self.flight.start(bucket)
    self._release(unit)
