"""How a checkpoint comes to be there: all of it at one moment, or not at all.

    root/
      .step-00000200/            being written; nobody takes it for a checkpoint
      step-00000100/             complete: it got this name by one rename, after everything in it
        manifest.json            was on the disk
        rank-00000.safetensors
        rank-00001.safetensors
      latest                     one line, the name of the newest: "step-00000100"

A save that dies before the rename leaves a hidden folder, which the next save removes. One that
dies after it leaves a complete checkpoint. Old ones are removed last of all. So at every moment
there is at least one complete checkpoint, once there has been one.
"""

from __future__ import annotations

import re
from pathlib import Path

from . import disk, manifest
from .disk import BrokenCheckpoint

LATEST = "latest"
_NAME = re.compile(r"step-(\d{8,18})(?:\.([1-9]\d{0,8}))?")


def commit(temporary: Path, final: Path) -> None:
    """Make the finished folder `temporary` appear as `final`, at once and for good.

    The contents of the files in it are on the disk already. When this returns, all names are too:
    those in the folder before it is renamed, or a crash could leave `final` without some of them;
    that of `final` afterwards, which stands in the folder above it (that of `temporary` may be
    another). Uses `disk.sync` and `disk.rename`.

    Errors of the disk are passed on, so that nobody takes the save for done. Nothing is replaced:
    if `final` is there already and holds something, `disk.rename` raises OSError, and both folders
    stay as they are.
    """
    disk.sync(temporary)
    disk.rename(temporary, final)
    disk.sync(final.parent)


def point_to(root: Path, name: str) -> None:
    """Let `root`/latest say `name`; a reader sees the old line or the new one, never a part.

    The line is the name and a line end, as bytes. It is written into another file in `root` (a
    rename is atomic only within one file system), which may have any name that no checkpoint has,
    and no folder in which one is written: readers look for folders called step-..., and only for
    those, and saves for .step-... That file is on the disk before it is renamed to `LATEST`; the
    new name is when this returns. A file of this name that a dead save has left behind does not
    matter; everything else in `root` stays. Uses `disk.write`, `disk.rename` and `disk.sync`.
    """
    temporary = root / f".{LATEST}"
    temporary.unlink(missing_ok=True)
    disk.write(temporary, f"{name}\n".encode())
    disk.rename(temporary, root / LATEST)
    disk.sync(root)


def pointer(root: Path) -> str | None:
    """What `root`/latest says; None if there is none. BrokenCheckpoint if it is no such name."""
    path = root / LATEST
    if not path.exists() and not path.is_symlink():
        return None
    with disk.reading(path) as file:
        text = file.read(100)
    name = text.decode(errors="replace").removesuffix("\n")
    if not _NAME.fullmatch(name):
        raise BrokenCheckpoint(f"{path} says {name!r:.60}, which is no checkpoint's name")
    return name


def temporary_name(step: int) -> str:
    """The name of the folder in which a checkpoint is written."""
    return f".step-{step:08}"


def free_name(root: Path, step: int) -> str:
    """A name for a checkpoint of `step` that is not taken: nothing is ever replaced.

    step-00000100, and if the same step is saved again, step-00000100.1, then .2 and so on.
    """
    taken = [int(match[2] or 0) for match in _matches(root) if int(match[1]) == step]
    return f"step-{step:08}" + (f".{max(taken) + 1}" if taken else "")


def names(root: Path) -> list[str]:
    """The names of the checkpoints in `root`, complete or not: last step first, and of one step
    the last one saved first."""
    found = sorted(_matches(root), key=lambda match: (int(match[1]), int(match[2] or 0)))
    return [match[0] for match in reversed(found)]


def before(root: Path, name: str) -> list[str]:
    """The other names in `root` that are not of a later step than `name` is."""
    return [n for n in names(root) if n != name and step_of(n) <= step_of(name)]


def step_of(name: str) -> int | None:
    """The step in a checkpoint's name; None if it is not such a name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def rotate(root: Path, keep_last: int, newest: str) -> None:
    """Remove all but the last `keep_last` checkpoints; `newest`, just written, is one of them.

    Neither counted nor removed are later steps (those of a run that was resumed from an earlier
    one: if they counted, only one of the new run would be left), and folders without a manifest,
    which we did not make.
    """
    old = [n for n in before(root, newest) if (root / n / manifest.NAME).is_file()]
    for name in old[keep_last - 1 :]:
        disk.remove(root / name)


def clear(root: Path) -> None:
    """Remove what saves that died have left behind."""
    for path in root.iterdir():
        if re.fullmatch(r"\.(removed\.)?step-\d+(\.\d+)?", path.name):
            disk.remove(path)


def _matches(root: Path) -> list[re.Match]:
    """The folders with a checkpoint's name. Links are none: they could lead anywhere."""
    found = [(path, _NAME.fullmatch(path.name)) for path in root.iterdir()]
    return [match for path, match in found if match and path.is_dir() and not path.is_symlink()]
