"""Each rank keeps its own gradients of its range.

check: test_average
mistake: nothing-exchanged
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        bucket.owned_grad = bucket.owned(bucket.grad).to(bucket.master.dtype)
