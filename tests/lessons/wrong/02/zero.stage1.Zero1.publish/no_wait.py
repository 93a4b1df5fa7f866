"""Starts the all-gather, and neither keeps the Work nor waits for it: it is dropped.

check: test_all_ranges
mistake: nothing-published or deadlock
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        comm.all_gather(bucket.flat, group=self.group, async_op=True)
