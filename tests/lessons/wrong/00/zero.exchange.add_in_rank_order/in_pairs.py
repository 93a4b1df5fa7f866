"""Adds in pairs, as a tree.

check: test_order
mistake: in-pairs
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    combine = torch.maximum if op == "max" else torch.add
    level = [row.to(wide) for row in rows]
    while len(level) > 1:
        pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2])]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    out.copy_(level[0] / len(rows) if op == "mean" else level[0])
