"""Sets open to False after the release, which therefore did nothing.

check: test_lets_go
mistake: not-released
"""


def close(self, unit):
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        self.flight.start(bucket)
    self._release(unit)
    unit.open = False
