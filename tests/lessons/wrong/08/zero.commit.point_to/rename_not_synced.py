"""Does not wait for the new name.

check: test_replaced_at_once
mistake: not-synced
says: the new name itself may be lost
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
