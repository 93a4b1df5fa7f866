"""Goes on as if nothing had happened when the rename fails.

check: test_error_passed_on
mistake: error-swallowed
"""


def commit(temporary, final):
    disk.sync(temporary)
    try:
        disk.rename(temporary, final)
    except OSError:
        pass
    disk.sync(final.parent)
