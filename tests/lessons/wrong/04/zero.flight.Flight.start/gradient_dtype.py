"""Receives the average in 32 bits, whatever the master has.

check: test_started
mistake: wrong-out
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    shard = torch.empty(bucket.master.shape)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
