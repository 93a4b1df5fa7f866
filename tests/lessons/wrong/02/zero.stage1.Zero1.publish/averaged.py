"""An all-reduce of the parameters: the mean of one new range and old ones.

check: test_all_ranges
mistake: averaged
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        comm.all_reduce(bucket.flat, group=self.group)
