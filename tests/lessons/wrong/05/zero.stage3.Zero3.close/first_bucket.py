"""A unit has one bucket, surely.

check: test_every_bucket
mistake: one-bucket-only
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable[:1]:
        self.flight.start(bucket)
    self._release(unit)
