"""The folder is synced before the rename as well, which does no harm."""


def point_to(root, name):
    temporary = root / ".tmp"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.sync(root)
    disk.rename(temporary, root / LATEST)
    disk.sync(root)
