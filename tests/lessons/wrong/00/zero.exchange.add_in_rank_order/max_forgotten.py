"""Knows sum and mean only.

check: test_max
mistake: sum-for-max
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
