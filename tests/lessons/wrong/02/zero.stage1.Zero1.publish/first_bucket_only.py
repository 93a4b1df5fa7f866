"""Publishes one bucket.

check: test_every_bucket
mistake: one-bucket-only
"""


def publish(self):
    bucket = self.buckets[0]
    bucket.refresh_shard()
    comm.all_gather(bucket.flat, group=self.group)
