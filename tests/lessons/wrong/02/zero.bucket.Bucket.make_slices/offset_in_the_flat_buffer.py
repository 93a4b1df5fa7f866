"""The offset counts in the flat buffer, not in the master.

check: test_parts
mistake: wrong-offset
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    first = self.rank * self.layout.shard_numel
    made = []
    for part in self.owned_parts():
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param, offset = nn.Parameter(elements), first + part.offset
        made.append(ParamSlice(part.name, part.start, part.end, param, whole[part.name], offset))
    return made
