"""Leaves the bucket on its way.

check: test_landed
mistake: not-forgotten
"""


def land(self):
    if self.bucket is None:
        return
    average = self.work.wait()
    if self.bucket.owned_grad is None:
        self.bucket.owned_grad = average
    else:
        self.bucket.owned_grad.add_(average)
    self.bucket.free_grad()
