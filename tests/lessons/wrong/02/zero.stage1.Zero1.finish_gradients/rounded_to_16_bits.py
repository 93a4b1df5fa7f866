"""In 16-bit training the average is rounded to 16 bits.

check: test_16_bits
mistake: 16-bit-average
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
