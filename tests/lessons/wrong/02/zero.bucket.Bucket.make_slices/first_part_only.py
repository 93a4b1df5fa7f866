"""Returns inside the loop: one part, and the others never train.

check: test_parts
mistake: part-missing
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made[:1]
