"""Frees the gradients while they are being sent.

check: test_started
mistake: freed-too-early
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    shard = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, shard, async_op=True)
    bucket.free_grad()
