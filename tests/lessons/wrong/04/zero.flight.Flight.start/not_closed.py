"""Sends whatever stands in the buffer where a gradient is missing.

check: test_started
mistake: not-closed
"""


def start(self, bucket):
    self.land()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
