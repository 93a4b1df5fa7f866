"""Writes the second micro-batch over the first.

check: test_a_new_tensor_each_time
mistake: memory-shared
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    out = bucket.owned_grad if bucket.owned_grad is not None else torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, out, async_op=True)
