"""Renames what has the final name: after a crash there is none of that name.

check: test_nothing_replaced
mistake: replaced
"""


def commit(temporary, final):
    old = final.with_name(final.name + ".old")
    if final.exists():
        disk.rename(final, old)
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(final.parent)
