"""The slices are tensors, no Parameters.

check: test_parameters
mistake: no-parameter
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = elements
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
