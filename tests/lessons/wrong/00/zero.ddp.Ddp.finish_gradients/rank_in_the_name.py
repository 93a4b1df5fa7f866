"""Gives the collective another name on each rank.

check: test_average
mistake:
says: the ranks disagree
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group, name=f"rank {self.rank}")
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
