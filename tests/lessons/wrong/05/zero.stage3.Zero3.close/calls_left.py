"""Leaves the calls in the set.

check: test_shut
mistake: calls-left
"""


def close(self, unit):
    unit.open = False
    for bucket in unit.trainable:
        self.flight.start(bucket)
    self._release(unit)
