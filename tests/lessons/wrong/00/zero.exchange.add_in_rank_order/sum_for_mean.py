"""Never divides: the mean is a sum.

check: test_mean
mistake: sum-for-mean
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    total = rows[0].to(wide, copy=True)
    for row in rows[1:]:
        total = torch.maximum(total, row.to(wide)) if op == "max" else total + row.to(wide)
    out.copy_(total)
