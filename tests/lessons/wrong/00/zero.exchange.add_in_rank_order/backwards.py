"""Starts with the last rank.

check: test_order
mistake: backwards
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows[-1].to(wide, copy=True)
    for row in rows[-2::-1]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
