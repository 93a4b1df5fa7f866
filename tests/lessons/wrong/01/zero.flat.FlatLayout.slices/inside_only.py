"""Knows parameters that lie wholly in the range, and no others.

check: test_each_rank
mistake:
says: expected
"""


def slices(self, rank):
    first, last = shard_bounds(self.numel, self.world_size, rank)
    return [
        Slice(s.name, 0, s.end - s.start, s.start - first)
        for s in self.spans
        if first <= s.start and s.end <= last
    ]
