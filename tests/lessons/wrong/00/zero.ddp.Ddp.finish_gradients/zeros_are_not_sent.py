"""A rank whose gradients are all zero makes no call; the others wait for it.

check: test_unused_bucket
says: the ranks disagree
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        if bucket.grad.any():
            comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
