"""The average is made in 16 bits and then widened: the fp32 tensor holds a rounded number.

check: test_16_bits
mistake: 16-bit-average
says: rounded to 16 bits on its way
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        average = self.reduce_bucket(bucket, bucket.owned(bucket.grad))
        bucket.owned_grad = average.to(bucket.master.dtype)
