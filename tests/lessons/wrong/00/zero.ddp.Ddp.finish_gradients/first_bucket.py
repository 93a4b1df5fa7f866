"""Takes the first bucket for all of them.

check: test_two_buckets
mistake: one-bucket-only
"""


def finish_gradients(self):
    for bucket in self.buckets[:1]:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
