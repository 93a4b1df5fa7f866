"""What happened when: the records that the memory meter and the clock fill.

All seconds are those of `time.perf_counter`, which is one clock for all processes of a machine, so
that the records of several ranks can be drawn on one axis.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

# In order of precedence: a storage that two kinds claim (an fp32 shard is a view of the parameters
# and their master at once) counts as the first of them.
KINDS = ("parameters", "gradients", "counters", "optimizer", "communication", "activations")


@dataclass(frozen=True)
class Event:
    """Something that ran from `start` to `end`, in seconds.

    `part` is "forward", "backward", "communication" or "optimizer"; `name` says what it was, as in
    "all_gather blocks.0". An asynchronous collective lasts from its start to the end of its wait.
    """

    part: str
    name: str
    rank: int
    start: float
    end: float


@dataclass(frozen=True)
class Moment:
    """What was alive at one moment: bytes by kind.

    `name` is the name given to `Meter.mark`, or "" where a storage came, went or changed its size.
    """

    seconds: float
    name: str
    live: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all kinds together."""
        return sum(self.live.values())


class History:
    """All changes of all storages, in order, and the kind of each storage.

    A storage has one kind for its whole life, the strongest that anybody found: a gradient counts
    as one from its birth, though only later `.grad` shows that it is. So the bytes by kind are
    worked out when they are asked for, from the first change on.
    """

    def __init__(self) -> None:
        self.kinds: list[str] = []  # by serial number of the storage
        self._claimed: set[int] = set()  # those whose kind is more than a guess
        self._changes: list[tuple[float, int, int]] = []  # seconds, serial, bytes from then on
        self._marks: list[tuple[int, float, str]] = []  # changes before it, seconds, name

    def add(self, guess: str) -> int:
        """The serial number of a new storage of 0 bytes, of this kind unless one is claimed."""
        self.kinds.append(guess)
        return len(self.kinds) - 1

    def claim(self, serial: int, kind: str) -> None:
        """The storage is of this kind, unless a stronger one has claimed it."""
        claimed = serial in self._claimed
        if not claimed or KINDS.index(kind) < KINDS.index(self.kinds[serial]):
            self.kinds[serial] = kind
        self._claimed.add(serial)

    def change(self, serial: int, nbytes: int) -> None:
        """The storage has `nbytes` from now on; 0 when it is freed."""
        self._changes.append((time.perf_counter(), serial, nbytes))

    def mark(self, name: str) -> None:
        """Name the present moment."""
        self._marks.append((len(self._changes), time.perf_counter(), name))

    def changes(self) -> list[tuple[int, int]]:
        """(serial number, bytes from then on) of every change, in order."""
        return [(serial, nbytes) for _, serial, nbytes in self._changes]

    def replay(self) -> Iterator[Moment]:
        """What was alive before the first change, then after each of them."""
        sizes = [0] * len(self.kinds)
        live = dict.fromkeys(KINDS, 0)
        yield Moment(self._changes[0][0] if self._changes else 0.0, "", dict(live))
        for seconds, serial, nbytes in self._changes:
            live[self.kinds[serial]] += nbytes - sizes[serial]
            sizes[serial] = nbytes
            yield Moment(seconds, "", dict(live))

    def moments(self) -> list[Moment]:
        """Every change in order, and the marks between them."""
        moments: list[Moment] = []
        marks = list(reversed(self._marks))
        for count, moment in enumerate(self.replay()):
            if count:
                moments.append(moment)
            while marks and marks[-1][0] == count:
                _, seconds, name = marks.pop()
                moments.append(Moment(seconds, name, moment.live))
        return moments

    def peaks(self) -> dict[str, int]:
        """The highest bytes of each kind; they need not have come at the same moment."""
        highest = dict.fromkeys(KINDS, 0)
        for moment in self.replay():
            for kind, size in moment.live.items():
                highest[kind] = max(highest[kind], size)
        return highest

    def at_peak(self) -> Moment:
        """The first moment of the highest total."""
        return max(self.replay(), key=lambda moment: moment.total)
