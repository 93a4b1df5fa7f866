"""Takes the rows out of the list.

check: test_rows_stay
mistake: list-changed
"""


def add_in_rank_order(rows, out, op):
    n = len(rows)
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows.pop(0).to(wide, copy=True)
    while rows:
        row = rows.pop(0)
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / n
    out.copy_(total)
