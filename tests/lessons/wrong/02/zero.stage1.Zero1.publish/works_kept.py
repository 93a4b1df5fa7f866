"""Starts the all-gathers, keeps the Works, and waits for none.

check: test_waits
mistake: no-wait or deadlock
"""


def publish(self):
    self.works = []
    for bucket in self.buckets:
        bucket.refresh_shard()
        self.works.append(comm.all_gather(bucket.flat, group=self.group, async_op=True))
