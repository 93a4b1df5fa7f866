"""Averages, and does not put the result where the update looks for it.

check: test_average
mistake: nothing-put-there
"""


def finish_gradients(self):
    for bucket in self.buckets:
        bucket.complete_gradients()
        comm.all_reduce(bucket.grad, group=self.group)
