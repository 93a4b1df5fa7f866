"""Adds the last micro-batch to the first, not to the sum.

check: test_micro_batches_add_up
mistake: middle-lost
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait()
    if bucket.owned_grad is None:
        bucket.first = bucket.owned_grad = average
    else:
        bucket.owned_grad = bucket.first + average
    bucket.free_grad()
