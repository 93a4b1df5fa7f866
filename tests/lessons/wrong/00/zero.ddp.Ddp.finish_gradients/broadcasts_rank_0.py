"""Gives everybody the gradients of rank 0.

check: test_average
mistake: rank-0-only
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.broadcast(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
