"""Syncs the renamed folder; its name stands in the one above.

check: test_order_of_steps
mistake: not-after
"""


def commit(temporary, final):
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(final)
