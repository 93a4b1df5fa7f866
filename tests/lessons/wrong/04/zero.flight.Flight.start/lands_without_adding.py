"""Lands the bucket before by itself, and forgets the earlier micro-batch.

check: test_one_at_a_time
mistake: not-landed
"""


def start(self, bucket):
    if self.work is not None:
        self.bucket.owned_grad = self.work.wait()
        self.bucket.free_grad()
    bucket.close_gradients()
    out = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, out, async_op=True)
