"""The same bucket is not landed before it leaves again.

check: test_one_at_a_time
mistake: not-landed
"""


def start(self, bucket):
    if self.bucket is not None and self.bucket is not bucket:
        self.land()
    bucket.close_gradients()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
