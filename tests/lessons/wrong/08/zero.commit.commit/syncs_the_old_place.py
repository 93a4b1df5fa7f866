"""Syncs the folder in which the old name stood.

check: test_from_another_folder
mistake: another-folder
"""


def commit(temporary, final):
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(temporary.parent)
