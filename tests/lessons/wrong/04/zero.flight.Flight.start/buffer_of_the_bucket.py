"""Makes the tensor for the average once for each bucket, and uses it again.

check: test_a_new_tensor_each_time
mistake: memory-shared
"""


def start(self, bucket):
    self.land()
    bucket.close_gradients()
    if "out" not in vars(bucket):
        bucket.out = torch.empty_like(bucket.master)
    self.bucket, self.work = bucket, self.opt.reduce_bucket(bucket, bucket.out, async_op=True)
