"""Forgets to bring the 16-bit parameters up to date with the masters.

check: test_rounding
mistake: masters-forgotten
"""


def publish(self):
    for bucket in self.buckets:
        comm.all_gather(bucket.flat, group=self.group)
