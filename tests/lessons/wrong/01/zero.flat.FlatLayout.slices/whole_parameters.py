"""Gives a parameter that crosses a bound to both ranks, whole.

check: test_each_rank
mistake: whole-parameters
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    found = []
    for span in self.spans:
        start, end = max(span.start, first), min(span.end, last)
        if start < end:
            found.append(Slice(span.name, 0, span.end - span.start, start - first))
    return found
