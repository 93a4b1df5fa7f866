"""Sends the fp32 masters: twice the bytes in 16-bit training.

check: test_bytes_published
mistake: too-many-bytes
says: bf16: rank 0
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        if bucket.has_master:
            whole = torch.zeros(bucket.flat.shape, dtype=bucket.master.dtype)
            bucket.owned(whole).copy_(bucket.master)
            comm.all_gather(whole, group=self.group)
            bucket.flat.copy_(whole)
        else:
            comm.all_gather(bucket.flat, group=self.group)
