"""Views the model's 16-bit parameters, not the fp32 master: small updates are lost.

check: test_master
mistake: not-the-master
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.shard[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append(
            ParamSlice(part.name, part.start, part.end, param, whole[part.name], part.offset)
        )
    return made
