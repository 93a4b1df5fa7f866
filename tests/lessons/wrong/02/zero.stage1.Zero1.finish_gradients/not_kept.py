"""Reduces, and forgets to keep the result.

check: test_average
mistake: nothing-left
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        self.reduce_bucket(bucket, out)
