"""Returns tuples.

check: test_parts
mistake: not-a-slice
"""


def make_slices(self):
    whole = dict(zip(self.names, self.params))
    made = []
    for part in self.owned_parts():
        elements = self.master[part.offset : part.offset + part.end - part.start]
        param = nn.Parameter(elements)
        made.append((part, param))
    return made
