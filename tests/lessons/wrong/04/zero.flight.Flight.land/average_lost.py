"""Waits and throws the average away.

check: test_landed
mistake: average-lost
"""


def land(self):
    if self.bucket is None:
        return
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    work.wait()
    bucket.free_grad()
