"""Copies the files one by one.

check: test_appears
mistake: copied
"""


def commit(temporary, final):
    disk.sync(temporary)
    final.mkdir()
    for path in sorted(temporary.iterdir()):
        disk.write(final / path.name, path.read_bytes())
    disk.sync(final)
    disk.sync(final.parent)
