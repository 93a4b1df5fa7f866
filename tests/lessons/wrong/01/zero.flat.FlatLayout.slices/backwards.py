"""Lists the slices from the last to the first.

check: test_each_rank
mistake: wrong-order
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append(Slice(span.name, start - span.start, end - span.start, start - first))
    return found[::-1]
