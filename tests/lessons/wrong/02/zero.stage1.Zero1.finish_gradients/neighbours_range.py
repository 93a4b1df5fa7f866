"""Takes the range of the next rank.

check: test_average
mistake: wrong-range
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        shard = bucket.layout.shard_numel
        start = (self.rank + 1) % self.world_size * shard
        bucket.owned_grad = bucket.grad[start : start + shard].to(bucket.master.dtype)
