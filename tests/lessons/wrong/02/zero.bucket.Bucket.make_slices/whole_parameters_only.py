"""Only parameters that lie wholly in the range: those cut by a boundary never train.

check: test_parts
mistake: part-missing
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        if part.end - part.start < whole[part.name].numel():
            continue
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
