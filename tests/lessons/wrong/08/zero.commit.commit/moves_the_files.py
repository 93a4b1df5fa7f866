"""Makes the folder first, and moves the files into it: half of them may be there.

check: test_appears
says: .step-1
"""


def commit(temporary, final):
    disk.sync(temporary)
    final.mkdir()
    for path in sorted(temporary.iterdir()):
        disk.rename(path, final / path.name)
    disk.sync(final)
    disk.sync(final.parent)
