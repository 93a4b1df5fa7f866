"""Multiplies by 1/N, which is rounded, and so is the product.

check: test_divided_once
mistake: rounded-twice
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    combine = torch.maximum if op == "max" else torch.add
    total = rows[0].to(wide)
    for row in rows[1:]:
        total = combine(total, row.to(wide))
    if op == "mean":
        total = total * (1 / len(rows))
    out.copy_(total)
