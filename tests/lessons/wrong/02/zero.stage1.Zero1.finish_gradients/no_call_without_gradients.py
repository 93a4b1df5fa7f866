"""A rank without a gradient leaves out the collective, and the others wait.

check: test_missing
mistake:
says: the ranks disagree
"""


def finish_gradients(self):
    for bucket in self.buckets:
        if any(p.grad is None for p in bucket.params):
            continue
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
