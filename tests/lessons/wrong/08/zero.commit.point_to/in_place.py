"""Writes latest itself.

check: test_replaced_at_once
mistake: in-place
"""


def point_to(root, name):
    (root / LATEST).write_text(f"{name}\n")
    disk.sync(root)
