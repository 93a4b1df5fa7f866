"""Divides the average by the number of ranks once more.

check: test_landed
mistake: wrong-scale
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait() / 2
    bucket.owned_grad = average if bucket.owned_grad is None else bucket.owned_grad + average
    bucket.free_grad()
