"""Zeroes the padding, but not what stands there for a parameter without a gradient.

check: test_missing
mistake: stale-gradient
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.grad_views()
        for p in bucket.params:
            if p.grad is not None:
                bucket.keep_gradient(p)
        bucket.grad[bucket.layout.numel :].zero_()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
