"""A return inside the loop: the second bucket has no average.

check: test_two_buckets
mistake: one-bucket-only
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
        return
