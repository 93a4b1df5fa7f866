"""Adds into rank 0's row: `.to` gives the row itself where no conversion is needed.

check: test_rows_stay
mistake: rows-changed
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows[0].to(wide)
    for row in rows[1:]:
        torch.maximum(total, row.to(wide), out=total) if op == "max" else total.add_(row.to(wide))
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
