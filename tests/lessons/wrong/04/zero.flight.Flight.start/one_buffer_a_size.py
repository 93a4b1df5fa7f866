"""Keeps one tensor for all buckets of one size.

check: test_a_new_tensor_each_time
mistake: memory-shared
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    if not hasattr(self, "outs"):
        self.outs = {}
    key = bucket.master.numel(), bucket.master.device
    out = self.outs.setdefault(key, torch.empty_like(bucket.master))
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, out, async_op=True)
