"""Adds fp64 rows in fp32.

check: test_64_bits
mistake: narrowed
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
