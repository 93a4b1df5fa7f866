"""Divides the average by the number of ranks.

check: test_average
mistake: divided-twice
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = self.reduce_bucket(bucket, out) / self.world_size
