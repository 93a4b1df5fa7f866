"""Does not wait for the names in the folder.

check: test_order_of_steps
mistake: not-before
"""


def commit(temporary, final):
    disk.rename(temporary, final)
    disk.sync(final.parent)
