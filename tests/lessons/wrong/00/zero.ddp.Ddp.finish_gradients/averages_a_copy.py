"""Averages the fp32 copy of the gradients and uses the gradients themselves.

check: test_average
mistake: nothing-exchanged
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad.clone(), group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
