"""Fails for ever after one save has died.

check: test_left_over
mistake: left-over
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
