"""Removes what has the final name: after a crash there is no checkpoint.

check: test_nothing_replaced
mistake: replaced
"""


def commit(temporary, final):
    if final.exists():
        import shutil

        shutil.rmtree(final)
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(final.parent)
