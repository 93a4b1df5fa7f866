"""Frees the whole gradients: stage 2 does that, and backward then finds no buffer.

check: test_memory
mistake: gradients-gone
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = torch.empty_like(bucket.owned(bucket.grad), dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out)
        for p in bucket.params:
            p.grad = None
        bucket.free_grad()
