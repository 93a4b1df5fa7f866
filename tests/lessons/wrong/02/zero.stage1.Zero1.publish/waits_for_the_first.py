"""Waits for the first all-gather only.

check: test_waits
mistake: no-wait
says: has waited for 1 of them
"""


def publish(self):
    works = []
    for bucket in self.buckets:
        bucket.refresh_shard()
        works.append(comm.all_gather(bucket.flat, group=self.group, async_op=True))
    works[0].wait()
