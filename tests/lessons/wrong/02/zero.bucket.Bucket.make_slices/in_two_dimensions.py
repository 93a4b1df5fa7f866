"""Gives a whole parameter its own shape again.

check: test_elements
mistake: wrong-shape
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements.view(1, -1))
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
