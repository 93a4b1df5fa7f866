"""Keeps every tensor that it has made.

check: test_a_new_tensor_each_time
mistake: out-kept
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    if not hasattr(self, "outs"):
        self.outs = []
    self.outs.append(torch.empty_like(bucket.master))
    self.bucket = bucket
    self.work = self.opt.reduce_bucket(bucket, self.outs[-1], async_op=True)
