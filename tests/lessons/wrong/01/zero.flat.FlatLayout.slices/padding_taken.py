"""Does not stop at the end of the parameter.

check: test_each_rank
mistake: padding-in-slice
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), last
        if start < end:
            found.append(Slice(span.name, start - span.start, end - span.start, start - first))
    return found
