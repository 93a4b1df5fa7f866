"""One parameter for all that the rank owns: one counter, one decay for all.

check: test_parts
mistake: one-parameter
"""


def make_slices(self):
    first = self.owned_parts()[0]
    param = nn.Parameter(self.master)
    return [ParamSlice(first.name, 0, self.master.numel(), param, self.params[0], 0)]
