"""Right numbers by an all-reduce of ranges among zeros: twice the bytes.

check: test_bytes_published
mistake: too-many-bytes
says: all-reduce
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        mine = bucket.shard.clone()
        bucket.flat.zero_()
        bucket.shard.copy_(mine)
        comm.all_reduce(bucket.flat, op="sum", group=self.group)
