"""Releases the parameters before it sends the gradients, which are memory of their own."""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    self._release(unit)
    for bucket in unit.trainable:
        self.flight.start(bucket)
