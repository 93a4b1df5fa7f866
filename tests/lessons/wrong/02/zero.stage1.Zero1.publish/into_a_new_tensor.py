"""Gathers into a new tensor, and points the parameters there.

check: test_views_stay
mistake: not-in-place
"""


def publish(self):
    for bucket in self.buckets:
        bucket.refresh_shard()
        whole = bucket.flat.clone()
        comm.all_gather(whole, group=self.group)
        for p, view in zip(bucket.params, bucket.layout.views(whole).values()):
            p.data = view
