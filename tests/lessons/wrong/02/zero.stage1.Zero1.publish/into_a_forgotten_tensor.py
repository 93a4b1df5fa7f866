"""Gathers into a copy, and the model never sees it.

check: test_all_ranges
mistake: nothing-published
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        whole = bucket.flat.clone()
        comm.all_gather(whole, group=self.group)
