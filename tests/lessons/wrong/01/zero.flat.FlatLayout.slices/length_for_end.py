"""Gives a length in place of the end.

check: test_each_rank
mistake: length-for-end
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append(Slice(span.name, start - span.start, end - start, start - first))
    return found
