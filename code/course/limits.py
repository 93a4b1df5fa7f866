"""A loop without an end is ended: by the seconds it has computed, not by the clock.

Computing time does not grow when the machine is busy, so a slow machine fails nobody. Waiting is
limited elsewhere: ranks that wait for each other are found by ``zero.launch``, everything else by
pytest's time limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

SECONDS = 10.0
VARIABLE = "COURSE_CPU_SECONDS"


class TakesTooLong(BaseException):
    """Raised in the learner's loop; a BaseException, so that their ``except`` lets it pass."""


@contextlib.contextmanager
def limited(seconds: float | None = None) -> Iterator[None]:
    """Raise :class:`TakesTooLong` after so much work, in this block and in ranks that it starts."""
    seconds = float(os.environ.get(VARIABLE) or SECONDS) if seconds is None else seconds
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(seconds)
    start(seconds)
    try:
        yield
    finally:
        start(0.0)
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def start_if_asked() -> None:
    """In a rank: take over the limit of the process that started it."""
    if os.environ.get(VARIABLE):
        start(float(os.environ[VARIABLE]))


def start(seconds: float) -> None:
    """Allow this process so many seconds of computing from now on; 0 is without limit."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGPROF, _end)
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _end(_signal, _frame) -> None:
    raise TakesTooLong("This computes and computes; is there a loop without an end?")
