"""Divides every row before it is added.

check: test_divided_once
mistake: rounded-twice
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    combine = torch.maximum if op == "max" else torch.add
    rows = [row.to(wide) / (len(rows) if op == "mean" else 1) for row in rows]
    total = rows[0]
    for row in rows[1:]:
        total = combine(total, row)
    out.copy_(total)
