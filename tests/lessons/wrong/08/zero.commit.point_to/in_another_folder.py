"""Writes the new file in another folder, which may be on another file system.

check: test_replaced_at_once
mistake: elsewhere
says: only within one file system
"""


def point_to(root, name):
    temporary = root.parent / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
