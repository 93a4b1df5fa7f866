"""Adds in out itself, so a row that shares its memory is lost.

check: test_out_is_a_row
mistake: written-too-early
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    out.copy_(rows[0])
    for row in rows[1:]:
        out.copy_(torch.maximum(out, row) if op == "max" else out.to(wide) + row.to(wide))
    if op == "mean":
        out /= len(rows)
