"""Removes every hidden thing, also a save that is being written.

check: test_others_stay
mistake: others-removed
"""


def point_to(root, name):
    import shutil

    for old in root.glob(".*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    new = root / ".latest"
    disk.write(new, (name + "\n").encode())
    disk.rename(new, root / LATEST)
    disk.sync(root)
