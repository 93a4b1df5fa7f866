"""Every rank has all parameters whole: a full AdamW on each.

check: test_parts
mistake: nothing-sharded
"""


def make_slices(self):
    made = []
    for span, p in zip(self.layout.spans, self.params):
        param = nn.Parameter(self.flat[span.start : span.end])
        made.append(ParamSlice(span.name, 0, span.end - span.start, param, p, span.start))
    return made
