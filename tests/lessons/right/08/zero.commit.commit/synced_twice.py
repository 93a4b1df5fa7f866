"""The folder above is synced before the rename as well, which does no harm."""


def commit(temporary, final):
    disk.sync(temporary)
    disk.sync(final.parent)
    disk.rename(temporary, final)
    disk.sync(final.parent)
