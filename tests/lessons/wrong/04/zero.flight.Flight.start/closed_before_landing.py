"""Closes the gradients before the bucket on its way has landed.

check: test_one_at_a_time
mistake: closed-before-landing
"""


def start(self, bucket):
    bucket.close_gradients()
    self.land()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
