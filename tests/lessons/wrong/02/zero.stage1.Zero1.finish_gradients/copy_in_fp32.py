"""The average gets memory of its own in fp32 too.

check: test_memory
mistake: second-copy
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = torch.empty_like(bucket.owned(bucket.grad), dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
