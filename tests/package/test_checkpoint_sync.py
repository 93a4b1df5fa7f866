"""What a save has on the disk, and when: a power cut must find a whole checkpoint as well.

A process that is killed loses nothing that it has written; a machine that stops loses whatever was
not synced. No test can cut the power, so these write down every fsync and every rename of a save,
on all ranks, in the order in which they were done.
"""

import os
from pathlib import Path

import pytest

import helpers
import zero
from checkpoints import on_ranks

SHARDS = {f"rank-0000{rank}.safetensors" for rank in range(2)}


class Diary:
    """Takes the place of os.fsync and os.replace: one line in a file that all ranks append to.

    A line is written after a sync has been done, and before a rename is begun. A file or folder
    is noted as its inode, which it keeps when its name changes, with the bytes that it then has.
    """

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.sync, self.replace = os.fsync, os.replace

    def fsync(self, handle):
        self.sync(handle)
        found = os.fstat(handle)
        os.write(self.file, f"sync {found.st_ino} {found.st_size}\n".encode())

    def rename(self, old, new):
        os.write(self.file, f"rename {Path(new).name} 0\n".encode())
        self.replace(old, new)

    def __enter__(self):
        os.fsync, os.replace = self.fsync, self.rename

    def __exit__(self, *_):
        os.fsync, os.replace = self.sync, self.replace
        os.close(self.file)


def save_twice(rank, world_size, root, async_save, diary):
    """The second save replaces the first one; the diary is about the second."""
    model, opt = helpers.sharded(rank, world_size, 2)
    zero.checkpoint.save(root, model, opt, 1)
    with Diary(diary):
        zero.checkpoint.save(root, model, opt, 2, keep_last=1, async_save=async_save)
        zero.checkpoint.wait()


def read(diary, root):
    """The lines of the diary, with names in place of inodes; and of which files each byte was on
    the disk. What the ranks tell each other in notes is left out: a crash makes it worthless."""
    names = {path.stat().st_ino: path for path in (root, *root.rglob("*"))}
    moves, whole = [], set()
    for line in diary.read_text().splitlines():
        what, which, size = line.split()
        path = names.get(int(which)) if what == "sync" else None
        if path is not None and path.is_file() and path.stat().st_size == int(size):
            whole.add(path.name)
        if not which.startswith("entry-"):
            moves.append(f"{what} {which if path is None else path.name}")
    return moves, whole


@pytest.mark.parametrize("async_save", [False, True])
def test_everything_is_on_the_disk_before_the_rename_that_commits_it(async_save, tmp_path):
    """All files, then the folder that names them, then the rename; after it the root, which names
    the folder. The pointer goes the same way, and only then is the old checkpoint removed."""
    root, diary = tmp_path / "root", tmp_path / "diary"
    on_ranks(save_twice, 2, str(root), async_save, str(diary))
    moves, whole = read(diary, root)
    assert whole == {*SHARDS, "manifest.json", "latest"}
    assert set(moves[:2]) == {f"sync {name}" for name in SHARDS}
    assert moves[2:] == [
        "sync manifest.json",
        "sync step-00000002",
        "rename step-00000002",
        "sync root",
        "sync latest",
        "rename latest",
        "sync root",
        "rename .removed.step-00000001",
    ]
