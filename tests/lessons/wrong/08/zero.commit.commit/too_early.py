"""Syncs the folder above before there is a new name in it.

check: test_order_of_steps
mistake: not-after
"""


def commit(temporary, final):
    disk.sync(temporary)
    disk.sync(final.parent)
    disk.rename(temporary, final)
