"""Writes the line and leaves it hidden.

check: test_line
mistake: no-file
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.sync(root)
