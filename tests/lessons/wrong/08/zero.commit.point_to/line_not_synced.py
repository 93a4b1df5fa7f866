"""Does not wait for the line: after a crash latest may be empty.

check: test_replaced_at_once
mistake: not-synced
says: not on the disk before the rename
"""


def point_to(root, name):
    temporary = root / f".{LATEST}"
    temporary.write_text(f"{name}\n")
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
