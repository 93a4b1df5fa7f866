"""Does not complete the gradients: what was not used keeps the last step's.

check: test_missing
mistake: stale-gradient
"""


def finish_gradients(self):
    for bucket in self.buckets:
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
