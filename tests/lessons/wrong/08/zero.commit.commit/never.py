"""Leaves the folder hidden.

check: test_appears
mistake: not-renamed
"""


def commit(temporary, final):
    disk.sync(temporary)
    disk.sync(final.parent)
