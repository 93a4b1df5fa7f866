"""Takes the name of the folder in which a checkpoint is written.

check: test_others_stay
mistake: name-of-a-save
"""


def point_to(root, name):
    new = root / f".{name}"
    new.unlink(missing_ok=True)
    disk.write(new, (name + "\n").encode())
    disk.rename(new, root / LATEST)
    disk.sync(root)
