"""Averages everything on every rank, and throws most of it away.

check: test_does_not_wait
mistake: waits
"""

from zero import comm


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        bucket.close_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.owned(bucket.grad).clone()
        bucket.free_grad()
    self._release(unit)
