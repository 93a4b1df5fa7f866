"""The few things that a checkpoint does to the disk, each in one place.

A file that has been written is not on the disk yet, and a folder that names it is not either: the
operating system keeps both in memory for a while. `sync` waits until they are really there. A
rename within one file system is *atomic*: whatever dies when, afterwards there is the old name or
the new one. A safe save is built from these two.

Every step passes through `at`, under a name such as "rename step-00000004". It does nothing, unless
a test (or you, in the lesson) has put a function into `hook`: that one may kill the process, or
raise as a full disk would. So what a crash does can be tried at every step there is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

hook: Callable[[str], None] | None = None


class CheckpointError(RuntimeError):
    """A checkpoint cannot be saved or loaded; the text names the file, or the argument."""


class BrokenCheckpoint(CheckpointError):
    """What is on the disk is no complete checkpoint: something is missing, cut short or altered."""


def at(step: str) -> None:
    """A step of a save is about to happen on this rank."""
    if hook is not None:
        hook(step)


class Writer:
    """A new file that counts and hashes what is written to it: `size` bytes, `sha256`.

    Use it in a `with` block; at its end the content is on the disk. FileExistsError if there is
    such a file already.
    """

    def __init__(self, path: Path):
        at(f"create {path.name}")
        self.path, self.size, self._hash = path, 0, hashlib.sha256()
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`; a raw file may take a part at a time."""
        at(f"write {self.path.name}")
        left = memoryview(data).cast("B")
        self._hash.update(left)
        self.size += len(left)
        while len(left):
            left = left[self._file.write(left) :]

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind, value, trace) -> None:
        with self._file:
            if kind is None:
                at(f"sync {self.path.name}")
                os.fsync(self._file.fileno())


def write(path: Path, content: bytes) -> None:
    """A new small file, on the disk when this returns."""
    with Writer(path) as file:
        file.write(content)


def leave_note(path: Path, content: bytes) -> None:
    """A new file for another rank that waits for it: seen whole or not at all, and not synced,
    since it has no value once the ranks are gone."""
    at(f"note {path.name}")
    half_done = path.with_suffix(".part")
    half_done.write_bytes(content)
    os.replace(half_done, path)


def sync(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk. (Windows has no such call.)"""
    at(f"sync {folder.name}")
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: Path) -> None:
    """A folder, with those above it, unless it is there already; their names are on the disk."""
    if not path.is_dir():
        make_folder(path.parent)
        at(f"make {path.name}")
        path.mkdir(exist_ok=True)
        sync(path.parent)


def rename(old: Path, new: Path) -> None:
    """Give a file or folder another name, atomically. A file that has this name is replaced."""
    at(f"rename {new.name}")
    os.replace(old, new)


def remove(folder: Path) -> None:
    """Remove a folder; one with a public name goes out of sight first, so that what is half removed
    never bears that name."""
    if not folder.name.startswith("."):
        hidden = folder.with_name(f".removed.{folder.name}")
        shutil.rmtree(hidden, ignore_errors=True)
        rename(folder, hidden)
        folder = hidden
    at(f"remove {folder.name}")
    shutil.rmtree(folder)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """A file of a checkpoint, open for reading.

    Raises BrokenCheckpoint, naming it, if it is missing, or no ordinary file: a link could lead out
    of the checkpoint's folder, and a pipe would wait for ever.
    """
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise BrokenCheckpoint(f"{path} is missing") from None
    except OSError as error:
        raise BrokenCheckpoint(f"{path} cannot be read as a file: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BrokenCheckpoint(f"{path} is not an ordinary file")
    with open(handle, "rb", buffering=0) as file:
        yield file
