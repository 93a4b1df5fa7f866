"""Averages over all ranks, whatever the group.

check: test_group
mistake: whole-world
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
