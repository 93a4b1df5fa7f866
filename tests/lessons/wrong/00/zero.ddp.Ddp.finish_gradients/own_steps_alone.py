"""Averages in every other step only, so the ranks drift apart in between.

check: test_weights
mistake: ranks-differ
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        if self.steps % 2 == 0:
            comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
