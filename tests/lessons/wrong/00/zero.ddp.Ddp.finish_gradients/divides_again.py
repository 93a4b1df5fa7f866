"""Divides the average once more.

check: test_average
mistake: divided-twice
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.grad /= self.world_size
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
