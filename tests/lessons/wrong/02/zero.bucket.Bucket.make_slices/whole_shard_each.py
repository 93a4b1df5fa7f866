"""Every slice is the whole master.

check: test_elements
mistake: whole-shard
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
