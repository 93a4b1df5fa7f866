"""Which checkpoint to load: the newest that is complete, and a word about those that are not.

What the pointer names comes first. If that is broken, the others are tried, the newest first. Later
steps come last: they are left from a run that was then resumed from an earlier one. A warning names
what was passed over, and why. If nothing complete is found, it is an error: a training run that
silently starts from nothing is the most expensive kind of failure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import commit, manifest, schema
from .disk import BrokenCheckpoint, CheckpointError

# Calls a function on every rank that takes part, and gives the results of all.
Each = Callable[[str, Callable[[], object]], list]


@dataclass(frozen=True)
class Found:
    """A complete checkpoint whose every byte has been verified: its folder and its manifest."""

    folder: Path
    manifest: dict


def find(
    root: Path, step: int | str, each: Each, what: str, rank: int = 0, world_size: int = 1
) -> Found | None:
    """The checkpoint `root` itself, or the one in it: of `step`, or the "latest".

    Collective if `each` is; the ranks then share the work of verifying the files. None if there is
    no checkpoint in `root`, not even a broken one. Raises BrokenCheckpoint, with the reason for
    each, if there are only broken ones.
    """
    names, problem = each(what, lambda: candidates(root, step) if rank == 0 else None)[0]
    reasons = [problem] if problem else []
    for name in names:
        folder = root / name
        found: list[dict] = []

        def verify(folder=folder, found=found) -> str:
            found.append(examine(folder, rank, world_size))
            return found[0]["sha256"]

        try:
            if len(set(each(what, verify))) > 1:
                raise CheckpointError(f"{folder} has not the same manifest for all ranks")
        except BrokenCheckpoint as error:
            reasons.append(f"{folder} is broken: {error}")
            continue
        if reasons and rank == 0:
            reason = "\n".join(reasons)
            warnings.warn(f"{reason}\nusing {folder} instead", stacklevel=4)
        return Found(folder, found[0])
    if reasons:
        raise BrokenCheckpoint("no complete checkpoint:\n" + "\n".join(reasons))
    return None


def candidates(root: Path, step: int | str) -> tuple[list[str], str | None]:
    """What may be loaded, relative to `root`, best first; and what is wrong with the pointer."""
    if (root / manifest.NAME).exists() or commit.step_of(root.name) is not None:
        right = step == "latest" or commit.step_of(root.name) in (None, step)
        return (["."] if right else []), None
    if not root.is_dir():
        return [], None
    names = commit.names(root)
    if step != "latest":
        return [name for name in names if commit.step_of(name) == step], None
    try:
        first = commit.pointer(root)
    except BrokenCheckpoint as error:
        return names, str(error)
    if first is None:
        return names, f"{root / commit.LATEST} is missing" if names else None
    if first not in names:
        return names, f"{root / commit.LATEST} names {first}, and there is no such folder"
    earlier = commit.before(root, first)
    return [first, *earlier, *(n for n in names if n != first and n not in earlier)], None


def manifest_of(folder: Path) -> dict:
    """The manifest of a checkpoint after all checks of it, without the files. BrokenCheckpoint."""
    found = manifest.read(folder)
    schema.check(found, folder)
    if commit.step_of(folder.name) not in (None, found["step"]):
        raise BrokenCheckpoint(
            f"{folder / manifest.NAME}: step is {found['step']}, not the folder's"
        )
    return found


def examine(folder: Path, rank: int = 0, world_size: int = 1) -> dict:
    """The same after every byte has been verified of each `world_size`-th file, from `rank` on."""
    found = manifest_of(folder)
    for file in sorted(found["files"])[rank::world_size]:
        schema.check_file(found, folder, file)
    return found


def alone(what: str, work: Callable[[], object]) -> list:
    """An `Each` for one process."""
    return [work()]
