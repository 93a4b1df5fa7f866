"""Averages micro-batches.

check: test_micro_batches_add_up
mistake: averaged
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait()
    if bucket.owned_grad is None:
        bucket.owned_grad = average
    else:
        bucket.owned_grad.add_(average).div_(2)
    bucket.free_grad()
