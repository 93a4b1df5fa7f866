"""Lands the first one after the second has left.

check: test_one_at_a_time
mistake: two-on-their-way
"""


def start(self, bucket):
    bucket.close_gradients()
    shard = torch.empty_like(bucket.master)
    work = self.opt.reduce_bucket(bucket, shard, async_op=True)
    self.land()
    self.bucket, self.work = bucket, work
