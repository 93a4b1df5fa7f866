"""Syncs the folder before there is a new name in it.

check: test_replaced_at_once
mistake: not-synced
says: before the rename; the new name
"""


def point_to(root, name):
    temporary = root / f"{LATEST}.new"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.sync(root)
    disk.rename(temporary, root / LATEST)
