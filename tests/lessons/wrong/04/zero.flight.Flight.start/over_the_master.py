"""Receives the average into the master weights.

check: test_started
mistake: over-the-master
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    self.bucket = bucket
    self.work = self.opt.reduce_bucket(bucket, bucket.master, async_op=True)
