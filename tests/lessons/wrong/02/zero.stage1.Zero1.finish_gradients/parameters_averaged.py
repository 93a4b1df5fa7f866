"""Averages the parameters in place of the gradients.

check: test_average
mistake: all-zero
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        out = bucket.owned(bucket.grad)
        if bucket.has_master:
            out = torch.empty_like(out, dtype=bucket.master.dtype)
        bucket.owned_grad = comm.reduce_scatter(bucket.flat, out, group=self.group)
