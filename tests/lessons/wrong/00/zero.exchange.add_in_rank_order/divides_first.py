"""Divides each row before it adds.

check: test_16_bits_are_divided_last
mistake: underflow
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    if op == "mean":
        rows = [row / len(rows) for row in rows]
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    out.copy_(total)
