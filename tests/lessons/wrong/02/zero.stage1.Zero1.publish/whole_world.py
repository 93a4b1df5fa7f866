"""Gathers from all ranks, not from those of the group.

check: test_group
mistake: whole-world
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        comm.all_gather(bucket.flat)
