"""Gives each parameter, whole, to the rank in whose range it begins.

check: test_each_rank
mistake:
says: expected
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found, offset = [], 0
    for span in self.spans:
        if first <= span.start < last:
            found.append(Slice(span.name, 0, span.end - span.start, offset))
            offset += span.end - span.start
    return found
