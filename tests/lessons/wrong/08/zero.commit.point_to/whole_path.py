"""Writes a path.

check: test_line
mistake: whole-path
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{root / name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
