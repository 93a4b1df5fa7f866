"""Keeps its own gradients in place of the average.

check: test_reduces
mistake: nothing-exchanged
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        bucket.owned_grad = bucket.owned(bucket.grad).clone()
        bucket.free_grad()
    self._release(unit)
