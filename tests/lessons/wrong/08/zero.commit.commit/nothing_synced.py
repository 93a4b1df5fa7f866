"""Only renames: after a power failure the files may be empty or gone.

check: test_order_of_steps
mistake: nothing-synced
"""


def commit(temporary, final):
    disk.rename(temporary, final)
