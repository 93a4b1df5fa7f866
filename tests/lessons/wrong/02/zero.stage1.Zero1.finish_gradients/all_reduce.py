"""Right numbers by an all-reduce, which sends twice as much.

check: test_bytes
mistake: all-reduce
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.owned(bucket.grad).to(bucket.master.dtype)
