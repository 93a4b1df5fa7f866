"""Lets torch.sum add the stacked rows: in groups, not one by one.

check: test_order_of_many
mistake: in-groups
"""


def add_in_rank_order(rows, out, op):
    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
    stacked = torch.stack(rows).to(wide)
    total = stacked.amax(0) if op == "max" else stacked.sum(0)
    if op == "mean":
        total = total / len(rows)
    out.copy_(total)
