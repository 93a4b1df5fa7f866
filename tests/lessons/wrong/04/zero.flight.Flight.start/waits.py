"""Waits for the reduction at once: nothing overlaps.

check: test_started
mistake: waited
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard)
