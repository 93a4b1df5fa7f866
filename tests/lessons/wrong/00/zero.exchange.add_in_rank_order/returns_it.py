"""Returns the result, where it should fill out.

check: test_sum
mistake: out-not-filled
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    return total
