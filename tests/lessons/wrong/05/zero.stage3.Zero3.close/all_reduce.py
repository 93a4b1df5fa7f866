"""Averages everything on every rank.

check: test_reduces
mistake: whole-average
"""

from zero import comm


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        bucket.close_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad
        bucket.free_grad()
    self._release(unit)
