"""Keeps no handle.

check: test_started
mistake: not-remembered or deadlock
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    self.opt.reduce_bucket(bucket, torch.empty_like(bucket.master), async_op=True)
