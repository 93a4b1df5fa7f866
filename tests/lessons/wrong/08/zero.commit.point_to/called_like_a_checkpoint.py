"""Gives the new file the name of a checkpoint.

check: test_replaced_at_once
mistake: name-of-a-checkpoint
"""


def point_to(root, name):
    temporary = root / name
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
