"""Leaves the line end out.

check: test_line
mistake: no-line-end
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, name.encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
