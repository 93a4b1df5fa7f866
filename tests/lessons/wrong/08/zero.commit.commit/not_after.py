"""Does not wait for the new name.

check: test_order_of_steps
mistake: not-after
"""


def commit(temporary, final):
    disk.sync(temporary)
    disk.rename(temporary, final)
