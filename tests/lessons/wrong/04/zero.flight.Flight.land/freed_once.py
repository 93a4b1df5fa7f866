"""Frees the gradients of the first micro-batch only.

check: test_micro_batches_add_up
mistake: not-freed
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait()
    if bucket.owned_grad is None:
        bucket.owned_grad = average
        bucket.free_grad()
    else:
        bucket.owned_grad.add_(average)
