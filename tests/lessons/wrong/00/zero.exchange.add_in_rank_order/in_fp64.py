"""Adds in fp64: more exact, but not the bits that the other stages have.

check: test_order
mistake: too-wide
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float64
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
