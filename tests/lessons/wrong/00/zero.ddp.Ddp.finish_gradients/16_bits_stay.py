"""Leaves a 16-bit gradient in 16 bits.

check: test_16_bits
mistake: wrong-dtype
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad
