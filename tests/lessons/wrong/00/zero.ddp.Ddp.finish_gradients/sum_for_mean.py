"""Sums over the ranks. Adam hides it; SGD does not.

check: test_average
mistake: sum-for-mean
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, op="sum", group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
