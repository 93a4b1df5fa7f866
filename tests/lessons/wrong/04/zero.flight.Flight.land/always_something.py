"""Expects that something is on its way.

check: test_nothing_to_land
says: NoneType
"""


def land(self):
    bucket, work, self.bucket, self.work = self.bucket, self.work, None, None
    average = work.wait()
    bucket.owned_grad = average if bucket.owned_grad is None else bucket.owned_grad + average
    bucket.free_grad()
