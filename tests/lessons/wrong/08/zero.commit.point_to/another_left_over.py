"""Fails for ever after one save has died, with another name for the new file.

check: test_left_over
mistake: left-over
says: latest.tmp was left
"""


def point_to(root, name):
    temporary = root / f"{LATEST}.tmp"
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
