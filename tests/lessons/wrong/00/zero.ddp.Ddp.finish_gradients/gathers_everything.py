"""Gathers the gradients of all ranks and averages at home: more bytes than an all-reduce.

check: test_bytes
mistake: too-many-bytes
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        rows = bucket.grad.new_zeros(self.world_size, bucket.grad.numel())
        rows[self.rank] = bucket.grad
        comm.all_gather(rows.view(-1), group=self.group)
        bucket.grad.copy_(rows.mean(0))
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
