"""Removes the old line before it renames: in between there is none.

check: test_killed_pointer
mistake: half-written
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    (root / LATEST).unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
