"""Keeps the average of everything.

check: test_average
mistake: whole-average
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad
