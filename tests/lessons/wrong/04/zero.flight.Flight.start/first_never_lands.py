"""Forgets the bucket that is on its way.

check: test_one_at_a_time
mistake: not-landed or deadlock
"""


def start(self, bucket):
    bucket.close_gradients()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
