"""Adds 16-bit rows in 16 bits.

check: test_16_bits_are_added_in_fp32
mistake: added-in-16-bits
"""


def add_in_rank_order(rows, out, op):
    wide = rows[0].dtype
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
