"""Takes the elements at start, which counts inside the parameter.

check: test_elements
mistake: start-for-offset
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master[part.start : part.end]
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
