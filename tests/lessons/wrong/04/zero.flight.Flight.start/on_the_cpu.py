"""Makes the tensor on the CPU, wherever the master is.

check: test_started
mistake: wrong-out
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    out = torch.zeros(bucket.master.numel(), dtype=bucket.master.dtype)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, out, async_op=True)
