"""Returns without a word if the final name is taken.

check: test_nothing_replaced
mistake: error-swallowed
"""


def commit(temporary, final):
    if final.exists():
        return
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(final.parent)
