"""Gives plain tuples.

check: test_each_rank
mistake: wrong-type
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append((span.name, start - span.start, end - span.start, start - first))
    return found
