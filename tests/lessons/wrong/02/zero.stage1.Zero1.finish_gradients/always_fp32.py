"""Makes fp32 of whatever is not fp32, also of fp64.

check: test_unused_bucket
mistake: wrong-dtype
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if out.dtype != torch.float32:
            out = torch.empty_like(out, dtype=torch.float32)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
