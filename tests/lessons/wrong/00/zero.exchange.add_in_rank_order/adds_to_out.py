"""Adds to what stands in out.

check: test_sum
mistake: adds-to-out
"""


def add_in_rank_order(rows, out, op):
    for row in rows:
        out += row
    if op == "mean":
        out /= len(rows)
