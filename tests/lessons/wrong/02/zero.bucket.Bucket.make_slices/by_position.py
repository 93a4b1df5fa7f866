"""Takes the i-th slice for the i-th parameter: right on rank 0 only.

check: test_parameters
mistake: wrong-whole
"""


def make_slices(self):
    made = []
    for part, p in zip(self.owned_parts(), self.params):
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append(ParamSlice(part.name, part.start, part.end, param, p, part.offset))
    return made
