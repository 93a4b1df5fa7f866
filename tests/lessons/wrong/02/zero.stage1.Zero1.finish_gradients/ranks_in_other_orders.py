"""Odd ranks take the buckets backwards: the collectives do not fit each other.

check: test_missing
mistake:
says: the ranks disagree
"""


def finish_gradients(self):
    buckets = self.buckets if self.rank % 2 == 0 else self.buckets[::-1]
    for bucket in buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
