"""Only rank 0 takes part in the all-reduce.

check: test_average
mistake:
says: the ranks disagree
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        if self.rank == 0:
            comm.all_reduce(bucket.grad, group=self.group)
        bucket.owned_grad = bucket.grad.to(bucket.master.dtype)
