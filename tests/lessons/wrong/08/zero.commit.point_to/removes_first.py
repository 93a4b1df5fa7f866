"""Removes the old pointer, then writes the new one.

check: test_replaced_at_once
mistake: in-place
"""


def point_to(root, name):
    (root / LATEST).unlink(missing_ok=True)
    disk.write(root / LATEST, f"{name}\n".encode())
    disk.sync(root)
