"""Rounds the length of a shard down, so the last elements have no owner.

check: test_each_rank
mistake:
says: expected
"""


def slices(self, rank):
    first, last = (
        rank * (self.numel // self.world_size),
        (rank + 1) * (self.numel // self.world_size),
    )
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append(Slice(span.name, start - span.start, end - span.start, start - first))
    return found
