"""Forgets complete_gradients and does a part of it: the padding stays what it was.

check: test_average
mistake: not-completed
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.grad_views()
        for p in bucket.params:
            if p.grad is not None:
                bucket.keep_gradient(p)
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
