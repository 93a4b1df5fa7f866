"""Counts start and end from the beginning of flat.

check: test_each_rank
mistake: range-in-flat
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append(Slice(span.name, start, end, start - first))
    return found
