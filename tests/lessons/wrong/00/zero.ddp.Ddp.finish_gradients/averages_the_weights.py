"""Averages the weights in place of the gradients.

check: test_average
mistake: nothing-exchanged
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.flat, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
