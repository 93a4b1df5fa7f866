"""One save, from the moment it begins until the checkpoint is committed or given up.

    begin      all ranks agree that they save the same; rank 0 makes the temporary folder
    write      every rank writes its shard, and beside it the shard's entry for the manifest
    publish    rank 0 collects the entries, writes the manifest, renames the folder, moves the
               pointer, removes what is too old
    finish     all ranks agree that it went well, or all raise the same error

In a background save `write` and `publish` run on a thread. A thread must not use collectives, which
would get between those of the training: there the ranks meet in the folder. Rank 0 waits until it
finds the entries of all ranks. `finish` is collective again, and belongs to the main thread.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from . import comm, commit, disk, manifest, schema, shards
from .agree import together
from .states import Piece

WHAT = "zero.checkpoint.save"


class Saving:
    """A save that has begun: every rank has agreed to it.

    root, step: where, and of which step. `head`: what the manifest says besides the shards.
    `pieces` and `others` are what this rank writes; `more` is what its entry says besides (see
    `manifest.assemble`). `group`: the ranks that save together. `release` is called with every
    tensor that has been read.
    """

    def __init__(
        self,
        root: Path,
        head: dict,
        pieces: list[Piece],
        others: dict[str, torch.Tensor],
        more: dict,
        keep_last: int,
        group: comm.Group,
        release: shards.Release,
    ):
        self.root, self.head, self.pieces, self.others = root, head, pieces, others
        self.more, self.keep_last, self.group = more, keep_last, group
        self.release = release
        self.rank, self.world_size = comm.rank(group), comm.world_size(group)
        self.folder = root / commit.temporary_name(head["step"])
        self.path: Path | None = None  # of the checkpoint, on rank 0, once it is committed
        self._thread: threading.Thread | None = None
        self._errors: dict[str, Exception] = {}  # of this rank, by part
        self._given_up = threading.Event()
        together(WHAT, self._make_folder, group)

    def in_background(self) -> None:
        """Write on a thread, from a copy of the shard in the CPU's memory. Collective."""
        together(f"{WHAT}, copy", self._copy, self.group)
        self._written = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zero checkpoint", daemon=True)
        self._thread.start()

    def finish(self) -> Path:
        """Wait for the save; the folder of the checkpoint. Collective, to be called once.

        Raises CheckpointError on every rank if a part of it failed on any; then what stood there
        before still stands.
        """
        global _running
        _running = None if _running is self else _running
        try:
            together(f"{WHAT}, shards", self._finish_shard, self.group)
            names = together(f"{WHAT}, commit", self._finish_commit, self.group)
        except disk.CheckpointError as error:
            self._discard()
            where = "in the background " if self._thread else ""
            text = f"step {self.head['step']} was not saved {where}to {self.root}: {error}"
            raise disk.CheckpointError(text) from error
        finally:
            self._given_up.set()  # let rank 0's thread end, whatever it still waits for
            self.pieces, self.others = [], {}
        return self.root / names[0]

    # --- the parts -------------------------------------------------------------------------------

    def _make_folder(self) -> None:
        if self.rank == 0:
            disk.make_folder(self.root)
            commit.clear(self.root)
            self.folder.mkdir()

    def _copy(self) -> None:
        for piece in self.pieces:
            piece.tensors = {kind: self._copied(t) for kind, t in piece.tensors.items()}
        self.others = {name: self._copied(t) for name, t in self.others.items()}

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in the CPU's memory, also of a tensor that is there already."""
        copy = tensor.detach().to("cpu", copy=True)
        self.release(tensor)
        return copy

    def _write_shard(self) -> None:
        file = manifest.file_of(self.rank)
        tensors = {f"{kind}/{p.name}": t for p in self.pieces for kind, t in p.tensors.items()}
        tensors |= self.others
        size, sha256 = shards.write_shard(self.folder / file, tensors, self.release)
        entry = manifest.shard_entry(file, size, sha256, self.pieces)
        disk.leave_note(self._entry_path(self.rank), json.dumps(entry | self.more).encode())

    def _publish(self) -> None:
        entries = []
        for rank in range(self.world_size):
            path = self._entry_path(rank)
            entries.append(json.loads(path.read_text()))
            path.unlink()
        for entry in entries:
            found = (self.folder / entry["file"]).stat().st_size
            if found != entry["bytes"]:
                raise disk.CheckpointError(
                    f"{self.folder / entry['file']}: rank 0 sees {found} bytes of {entry['bytes']} "
                    f"written; all ranks must write to the same file system"
                )
        whole = manifest.assemble(self.head, entries)
        schema.check(whole, self.folder)  # what will not be accepted must not be written either
        disk.write(self.folder / manifest.NAME, manifest.to_bytes(whole))
        final = self.root / commit.free_name(self.root, self.head["step"])
        commit.commit(self.folder, final)
        self.path = final
        commit.point_to(self.root, final.name)
        commit.rotate(self.root, self.keep_last, final.name)

    def _entry_path(self, rank: int) -> Path:
        return self.folder / f"entry-{rank:05}.json"

    def _discard(self) -> None:
        """Remove what was written of a save that has failed; what stays, the next one removes."""
        self._given_up.set()
        if self._thread is not None:
            self._thread.join()
        if self.rank == 0:
            with contextlib.suppress(OSError):
                disk.remove(self.folder)

    # --- on the thread, or not -------------------------------------------------------------------

    def _run(self) -> None:
        self._attempt("shard", self._write_shard)
        self._written.set()
        if self.rank == 0 and not self._errors and self._others_have_written():
            self._attempt("commit", self._publish)

    def _others_have_written(self) -> bool:
        """Wait for the entries of all ranks; False if the save is given up before."""
        waiting = set(range(self.world_size))
        while waiting := {rank for rank in waiting if not self._entry_path(rank).exists()}:
            if self._given_up.wait(0.02):
                return False
        return True

    def _attempt(self, part: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._errors[part] = error

    def _finish_shard(self) -> None:
        if self._thread is None:
            self._write_shard()
            return
        self._written.wait()
        self._reraise("shard")

    def _finish_commit(self) -> str | None:
        if self.rank != 0:
            return None
        if self._thread is None:
            self._publish()
        else:
            self._thread.join()
            self._reraise("commit")
        return self.path.name

    def _reraise(self, part: str) -> None:
        if part in self._errors:
            raise self._errors[part]


_running: Saving | None = None  # the background save of this process, if there is one


def start_in_background(saving: Saving) -> None:
    """Let a save go on while the training does. There is at most one at a time."""
    global _running
    saving.in_background()
    _running = saving


def wait() -> Path | None:
    """Finish the background save; its folder, or None if there is none. Collective.

    Raises what went wrong with it, on every rank.
    """
    return None if _running is None else _running.finish()
