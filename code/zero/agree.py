"""Errors are collective: what fails on one rank is raised on all of them, in the same words.

The worst that a rank can do while a checkpoint is written is to leave silently, because the others
then wait for it, or go on and believe in a checkpoint that has a hole. So every part of a save or
load is done in `together`, which compares notes before anybody goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch

from . import comm
from .disk import BrokenCheckpoint, CheckpointError


def together(what: str, work: Callable[[], object], group: comm.Group = None) -> list:
    """Call `work()` on every rank; every rank receives all results, in rank order. Collective.

    `work` itself must not use collectives, and its results must be JSON. `what` names the moment
    and must be the same on all ranks. If `work` raises on any rank, every rank raises a
    CheckpointError that says on which and why; a BrokenCheckpoint if that is what all of them had.
    """
    cause = None
    try:
        note = {"result": work()}
    except Exception as error:
        cause = error
        note = {"error": in_words(error), "broken": isinstance(error, BrokenCheckpoint)}
    notes = exchange_notes(what, note, group)
    failed = {rank: note for rank, note in enumerate(notes) if "error" in note}
    if not failed:
        return [note["result"] for note in notes]
    texts: dict[str, list[str]] = {}
    for rank, note in failed.items():
        texts.setdefault(note["error"], []).append(str(rank))
    lines = [f"rank {', '.join(ranks)}: {text}" for text, ranks in texts.items()]
    text = next(iter(texts)) if len(failed) == len(notes) and len(texts) == 1 else "\n".join(lines)
    kind = BrokenCheckpoint if all(n["broken"] for n in failed.values()) else CheckpointError
    raise kind(text) from cause


def called_by_all(what: str, arguments: dict, group: comm.Group = None) -> None:
    """Make sure that all ranks have called `what`, with the same arguments. Collective.

    Raises CheckpointError on the ranks that did call it, naming those that did not.
    """
    try:
        notes = exchange_notes(what, arguments, group)
    except comm.CommError as error:
        if "lost its peers" in str(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.startswith("  rank ")]
        absent = ", ".join(line[5 : line.index(":")] for line in lines if what not in line)
        raise CheckpointError(
            f"{what} is collective, all ranks must call it"
            + (f"; ranks {absent} did not call it" if absent else "")
            + f". {error}"
        ) from error
    for rank, note in enumerate(notes):
        for key, value in note.items():
            if value != notes[0][key]:
                raise CheckpointError(
                    f"{what}: {key} is {notes[0][key]!r} on rank 0 and {value!r} on rank {rank}; "
                    f"it must be the same on all ranks"
                )


def exchange_notes(what: str, note: object, group: comm.Group = None) -> list:
    """Every rank's `note`, which is JSON, in rank order. Collective."""
    text = np.frombuffer(json.dumps(note).encode(), dtype=np.uint8)
    size = torch.tensor([len(text)], device=comm.device())
    sizes = comm.all_gather_small(size, group=group, name=what).flatten().tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(text)] = torch.from_numpy(text.copy())
    rows = comm.all_gather_small(padded.to(comm.device()), group=group, name=f"{what}, notes")
    rows = rows.cpu().numpy()
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def in_words(error: Exception) -> str:
    """The error as one line; what the disk said with the file that it was about."""
    if isinstance(error, CheckpointError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    return f"{type(error).__name__}: {error}"
