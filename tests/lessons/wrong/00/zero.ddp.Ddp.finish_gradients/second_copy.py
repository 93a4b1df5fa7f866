"""Keeps the average beside the gradients.

check: test_memory
mistake: second-copy
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype, copy=True)
