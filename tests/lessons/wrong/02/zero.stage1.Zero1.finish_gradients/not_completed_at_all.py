"""Forgets complete_gradients: the buffer is taken as it is.

check: test_average
mistake: not-completed
"""


def finish_gradients(self):
    for bucket in self.buckets:
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
