"""Syncs the contents after the rename, when it is too late.

check: test_order_of_steps
mistake: not-before
"""


def commit(temporary, final):
    disk.rename(temporary, final)
    disk.sync(final)
    disk.sync(final.parent)
