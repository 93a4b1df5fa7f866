"""Converts 16-bit gradients before they are sent: twice the bytes.

check: test_bytes
mistake: too-many-bytes
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
        comm.all_reduce(bucket.owned_grad, group=self.group)
