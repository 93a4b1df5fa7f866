"""Watches running ranks: hears results and failures, recognises deadlocks, gathers the report.

A rank counts as waiting for ever if it stands in one collective, at one line, and its process
neither computes nor sends meanwhile. When every rank that still runs does so for PATIENCE seconds,
nobody can ever go on: that is a deadlock. A rank that computes, sleeps or transfers data is not
waiting.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from . import _explain, _rank
from ._explain import Failure, Place

TICK = 0.25  # seconds between two questions to the ranks
PATIENCE = 2.5  # seconds without any movement after which waiting ranks count as deadlocked
IDLE = 0.1  # CPU seconds that a waiting rank may use meanwhile
SPINNING = 0.5  # CPU seconds meanwhile of a network thread that has nothing to do
FRESH = 2.0  # seconds for which an answer counts
LAST_WORDS = 1.0  # seconds for the other ranks to fail as well, or to come to a collective
BRIEFLY = 0.05  # seconds between two questions then
MOST_OUTPUT = 1 << 20  # bytes of a rank's output that are shown, the last ones

# multiprocessing looks at the processes of all launches when it starts one; two threads that ask
# for the same exit code at once would lose it.
processes = threading.Lock()


class Peer:
    """One rank, seen from the launching process; it is running, returned, raised or died."""

    def __init__(self, number: int, process: BaseProcess, pipe: Connection):
        self.number, self.process, self.pipe = number, process, pipe
        self.state = "running"
        self.exitcode: int | None = None
        self.failure: Failure | None = None
        self.place: Place | None = None  # where it was when it last answered
        self.still_since: float | None = None  # since when it has waited at that place
        self._asked, self._answered = False, 0.0
        self._stack, self._cpu, self._spun = 0, 0.0, 0.0
        self.spins = False  # is its network thread busy with a message that nobody receives?

    def ask(self) -> None:
        """Ask where the rank is; the answer comes through `hear`."""
        if self._asked:
            return  # it is too busy to have answered the last time
        self._asked = True
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(b"where")

    def hear(self) -> None:
        """Take in what the rank has sent, and whether it still lives."""
        try:
            while self.state == "running" and self.pipe.poll():
                kind, value = self.pipe.recv()
                if kind == "place":
                    self._stands(*value)
                else:
                    self.state, self.failure = kind, value
        except (EOFError, OSError):
            wait([self.process.sentinel], 1.0)
            self.state = "died"
        with processes:
            self.exitcode = self.process.exitcode
        if self.state == "running" and self.exitcode is not None:
            self.state = "died"

    def _stands(self, cpu: float, spun: float, stack: int, place: Place) -> None:
        self._asked, self._answered = False, time.monotonic()
        moved = stack != self._stack or cpu - self._cpu > IDLE
        if moved or self.still_since is None or not place.collective:
            self.still_since = self._answered if place.collective else None
            self._stack, self._cpu, self._spun = stack, cpu, spun
        self.spins = spun - self._spun > SPINNING
        self.place = place

    def waits_for(self, seconds: float) -> bool:
        """Whether the rank has stood still in one collective of `fn` for so long."""
        if self.place is None or not self.place.frames or self.still_since is None:
            return False
        fresh = time.monotonic() - self._answered < FRESH
        return fresh and self._answered - self.still_since > seconds

    @property
    def is_cause(self) -> bool:
        """Whether this rank failed by itself, and not because another one had gone."""
        return self.state == "died" or (self.failure is not None and not self.failure.lost_peer)

    def words(self, folder: str) -> list[str]:
        """What happened to the rank: a phrase, then source lines."""
        if self.failure is not None:
            return _explain.raised(self.failure)
        if self.state == "returned":
            return ["had returned"]
        if self.state == "died":
            dump = _read(f"{folder}/{_rank.CRASH}{self.number}").decode(errors="replace")
            crash = _explain.crash_place(dump)
            lines = _explain.lines_of(crash) or _explain.lines_of(self.place, "last seen at ")
            return [_explain.death(self.exitcode), *lines]
        if self.place is None:
            return ["was too busy to say where it was"]
        return _explain.waiting(self.place)


class Watch:
    """Follows the ranks of one launch until all have returned or something went wrong."""

    def __init__(
        self,
        peers: list[Peer],
        folder: str,
        timeout: float | None,
        live: Callable[[str], object] | None,
    ):
        self.peers, self.folder, self.timeout, self.live = peers, folder, timeout, live
        self._shown = 0  # bytes of rank 0's stdout that `live` has had

    def until_the_end(self) -> str:
        """Wait; "" when all have returned, else "failed", "deadlock" or "timeout"."""
        started = asked = time.monotonic()
        while running := [peer for peer in self.peers if peer.state == "running"]:
            self._hear(TICK)
            self._follow()
            now = time.monotonic()
            if any(peer.state in ("raised", "died") for peer in self.peers):
                self._last_words()
                return "failed"
            if self.timeout is not None and now - started > self.timeout:
                return "timeout"
            running = [peer for peer in running if peer.state == "running"]
            if running and all(peer.waits_for(PATIENCE) for peer in running):
                return "deadlock"
            if now - asked >= TICK:
                asked = now
                for peer in running:
                    peer.ask()
        self._follow(to_the_end=True)
        return ""

    def _hear(self, seconds: float) -> None:
        """Take in what the running ranks send; returns at the first event or after `seconds`."""
        by_event = {}
        for peer in self.peers:
            if peer.state == "running":
                by_event.update({peer.pipe: peer, peer.process.sentinel: peer})
        for peer in {by_event[event] for event in wait(list(by_event), seconds)}:
            peer.hear()
            if peer.state != "running":
                for other in self.peers:  # they may have moved on since they answered
                    other.still_since = None

    def _last_words(self) -> None:
        """After a failure: let the others fail too or come to where they wait for the lost rank."""
        end = time.monotonic() + LAST_WORDS
        while time.monotonic() < end:
            running = [peer for peer in self.peers if peer.state == "running"]
            if all(peer.waits_for(2 * BRIEFLY) for peer in running):
                return
            for peer in running:
                peer.ask()
            self._hear(BRIEFLY)
            time.sleep(BRIEFLY)

    # --- the report ---

    def report(self, reason: str) -> str:
        """What went wrong: the first cause, then where everybody else was."""
        causes = [p for p in self.peers if p.is_cause] or [p for p in self.peers if p.failure]
        lines = []
        if reason == "deadlock":
            lines = ["deadlock: no rank can go on, each waits for another one"]
            if spinning := [peer.number for peer in self.peers if peer.spins]:
                lines += [_explain.dropped(spinning)]
        if reason == "timeout":
            lines = [f"not done after {self.timeout:g} s (timeout={self.timeout:g})"]
        others = [peer for peer in self.peers if peer not in causes]
        for peers in (causes, others):
            lines += _explain.grouped({peer.number: peer.words(self.folder) for peer in peers})
        return "\n".join(lines)

    # --- output ---

    def _follow(self, to_the_end: bool = False) -> None:
        """Hand the new lines of rank 0 to `live`."""
        if self.live is None:
            return
        new = _read(f"{self.folder}/{_rank.STDOUT}0", self._shown)
        ready = new if to_the_end else new[: new.rfind(b"\n") + 1]
        self._shown += len(ready)
        for line in ready.decode(errors="replace").splitlines():
            self.live(line)

    def show_output(self, quiet: bool) -> str:
        """Print what the ranks printed, unless `quiet`; returns it."""
        shown = []
        for name, stream in ((_rank.STDOUT, sys.stdout), (_rank.STDERR, sys.stderr)):
            files = [f"{self.folder}/{name}{peer.number}" for peer in self.peers]
            outputs = [_read(file).decode(errors="replace") for file in files]
            if self.live is not None and name == _rank.STDOUT:
                outputs[0] = _read(files[0], self._shown).decode(errors="replace")
            text = "".join(f"{line}\n" for line in _explain.merged(outputs))
            if text and not quiet:
                print(text, end="", file=stream, flush=True)
            shown.append(text)
        return "".join(shown)


def _read(path: str, start: int | None = None) -> bytes:
    """A file from byte `start` on; without `start`, its last MOST_OUTPUT bytes."""
    try:
        with open(path, "rb") as file:
            skip = max(0, file.seek(0, 2) - MOST_OUTPUT) if start is None else start
            file.seek(skip)
            content = file.read()
    except FileNotFoundError:
        return b""
    return b"... %d bytes before\n" % skip + content if start is None and skip else content
