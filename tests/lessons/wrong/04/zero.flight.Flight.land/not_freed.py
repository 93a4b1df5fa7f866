"""Keeps the whole gradients.

check: test_landed
mistake: not-freed
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait()
    bucket.owned_grad = average if bucket.owned_grad is None else bucket.owned_grad + average
