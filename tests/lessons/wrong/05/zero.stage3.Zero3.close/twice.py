"""Sends every bucket twice: the second time it has zeros.

check: test_bytes_reduced
mistake: bytes
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        self.flight.start(bucket)
    for bucket in unit.trainable:
        self.flight.start(bucket)
    self._release(unit)
