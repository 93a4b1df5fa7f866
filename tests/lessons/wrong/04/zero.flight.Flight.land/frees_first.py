"""Frees the gradients before the reduction has read them.

check: test_landed
mistake: freed-too-early
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    bucket.free_grad()
    average = work.wait()
    bucket.owned_grad = average if bucket.owned_grad is None else bucket.owned_grad + average
