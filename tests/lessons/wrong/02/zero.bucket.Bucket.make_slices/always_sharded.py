"""Asks the layout for this rank's part even if nothing is sharded.

check: test_not_sharded
mistake: sharded-anyway
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.layout.slices(self.rank):
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
