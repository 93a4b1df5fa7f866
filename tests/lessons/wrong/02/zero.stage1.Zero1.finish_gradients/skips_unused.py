"""A rank without a gradient in a bucket makes no call; the others wait for it.

check: test_unused_bucket
says: the ranks disagree
"""


def finish_gradients(self):
    for bucket in self.buckets:
        if all(p.grad is None for p in bucket.params):
            continue
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
