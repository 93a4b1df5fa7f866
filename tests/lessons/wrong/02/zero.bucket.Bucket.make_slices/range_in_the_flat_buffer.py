"""start and end count in the flat buffer, not inside the parameter.

check: test_parts
mistake: wrong-range
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    first = self.rank * self.layout.shard_numel
    made = []
    for part in self.owned_parts():
        start, end = first + part.offset, first + part.offset + part.end - part.start
        param = nn.Parameter(self.master[start - first : end - first])
        made.append(ParamSlice(part.name, start, end, param, whole[part.name], part.offset))
    return made
