"""Sends the gradients as fp64, twice the bytes.

check: test_bytes
mistake: too-many-bytes
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        average = comm.all_reduce(bucket.grad.double(), group=self.group)
        bucket.grad.copy_(average)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
