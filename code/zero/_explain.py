"""Where a rank stands and what happened to it, in words.

The ranks describe themselves with `Place` and `Failure`; the launching process turns those into
the message of a `RankError`. What a reader wants to see is the line of their own program, so the
frames of torch, of Python's library and of this package are left out, except the innermost one of
this package.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType

ZERO = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
MOST_FRAMES = 5
EXCHANGE = ("zero.exchange", "zero.messages")
LOOK_AHEAD = 100  # lines

# What gloo and comm.py say on a rank whose peer has gone: an effect, never the first cause.
_LOST_PEER = re.compile(
    "connection (closed|reset) by peer|broken pipe|pair closure|lost its peers", re.IGNORECASE
)


@dataclass(frozen=True)
class Frame:
    """One line of a stack: file, line number, function, module (dotted), source text."""

    file: str
    line: int
    function: str
    module: str
    text: str

    @property
    def of_user(self) -> bool:
        """Whether this is the user's own program: neither torch nor Python nor this package."""
        return not (
            self.file.startswith((ZERO + os.sep, "<frozen"))
            or self.module.startswith("torch.")
            or any(self.file.startswith(library + os.sep) for library in _LIBRARIES)
        )

    @property
    def public(self) -> bool:
        name = self.function.rpartition(".")[2]
        return not name.startswith(("_", "<")) and name != "wrapper"


@dataclass(frozen=True)
class Place:
    """Where a rank stands: the collective that it is in ("" for none) and the lines to show."""

    collective: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Failure:
    """An exception of a rank, as plain data: exceptions themselves cannot always be sent."""

    type: str
    message: str
    place: Place
    traceback: str

    @property
    def lost_peer(self) -> bool:
        """Whether this rank failed only because another one had gone."""
        return bool(_LOST_PEER.search(self.message))


# --- in the rank: stacks become places -----------------------------------------------------------


def frames_of(stack: Iterable[tuple[FrameType, int]]) -> list[Frame]:
    """Frames of `traceback.walk_tb`, in their order."""
    return _with_text(_places_in(stack))


def frames_of_thread(number: int) -> list[Frame]:
    """The frames of another thread, which goes on; innermost first.

    Its local variables must not be read (Python may crash: they change without a lock), and as long
    as somebody holds a frame they live, tensors too. So that thread must not run Python while we
    look, and files are read afterwards.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.2)
    try:
        time.sleep(0)  # it may have waited for the usual time already; now it waits anew
        stack = traceback.walk_stack(sys._current_frames()[number])
        seen = _places_in(stack, running=True)
    finally:
        sys.setswitchinterval(usual)
    return _with_text(seen)


def _with_text(places: list[tuple[str, int, str, str]]) -> list[Frame]:
    return [Frame(*place, linecache.getline(*place[:2]).strip()) for place in places]


def _places_in(
    stack: Iterable[tuple[FrameType, int]], running: bool = False
) -> list[tuple[str, int, str, str]]:
    """File, line, function and module of each frame."""
    seen = []
    for frame, line in stack:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has only the short name
        module = frame.f_globals.get("__name__") or ""
        # A collective's ticket says its name, size and dtype.
        if module in EXCHANGE and running:
            name = getattr(sys.modules.get("zero.messages"), "waiting_in", "") or name
        elif module in EXCHANGE:
            name = getattr(frame.f_locals.get("ticket"), "text", name)
        line = line or code.co_firstlineno  # a frame seen between two lines has None
        seen.append((code.co_filename, line, name, module))
        del frame
    return seen


def place_of(stack: Sequence[Frame], most: int = 1) -> Place:
    """The place of a stack (innermost frame first), with the `most` innermost lines of the user."""
    users = [i for i, frame in enumerate(stack) if frame.of_user]
    inner = stack[: users[0]] if users else stack
    shown = [stack[i] for i in reversed(users[:most])]
    ours = [f for f in inner if f.file.startswith(ZERO + os.sep)]
    # The line of this package that called the collective, or that raised.
    shown += [f for f in ours if f.module not in (*EXCHANGE, "zero.comm", "zero._rank")][:1]
    return Place(_collective(stack[: users[0] + 1] if users else stack), tuple(shown))


def _collective(inner: Sequence[Frame]) -> str:
    """The collective that a stack (innermost first, up to the user's line) stands in, or ""."""
    kinds = [
        lambda f: f.module in EXCHANGE and "(" in f.function,
        lambda f: f.module == "zero.comm" and f.public,
        lambda f: f.module in EXCHANGE and f.public,
        lambda f: f.module.startswith("torch.distributed") and f.public,
        lambda f: f.module.startswith(("torch.distributed", "torch.nn.parallel")),
        # DistributedDataParallel waits in C++, inside of backward.
        lambda f: f.module.startswith("torch.autograd"),
    ]
    for is_kind in kinds:
        for frame in inner:
            if is_kind(frame):
                return frame.function.removeprefix("_engine_run_")
    # torch's own handles (`dist.isend(...).wait()`) are written in C and leave no frame.
    return "wait()" if inner and ".wait(" in inner[0].text else ""


def failure_of(error: BaseException) -> Failure:
    """Everything worth telling about an exception, without the launcher's own frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == "zero._rank":
        trace = trace.tb_next
    stack = frames_of(traceback.walk_tb(trace))[::-1]
    text = "".join(traceback.format_exception(type(error), error, trace))
    return Failure(type(error).__name__, str(error), place_of(stack, MOST_FRAMES), text)


# --- in the launching process: places become words -----------------------------------------------


def crash_place(dump: str) -> Place | None:
    """Where a rank crashed, from what faulthandler wrote (it knows files, but no modules)."""
    for thread in re.split(r"^(?:Current thread|Thread) .*$", dump, flags=re.MULTILINE)[1:]:
        found = re.findall(r'File "(.*)", line (\d+) in (.*)', thread)
        stack = [
            Frame(file, int(n), name, _module(file), linecache.getline(file, int(n)).strip())
            for file, n, name in found
        ]
        if any(frame.of_user for frame in stack):
            return place_of(stack)
    return None


def _module(file: str) -> str:
    """The dotted module of a file of torch or of this package, else ""."""
    parts = file.removesuffix(".py").split(os.sep)
    for package in ("torch", "zero"):
        if package in parts:
            return ".".join(parts[parts.index(package) :])
    return ""


def death(exitcode: int | None) -> str:
    """How a process died, from its exit code."""
    if exitcode is None:
        return "closed its connection to the launching process"
    if exitcode >= 0:
        return f"died with exit code {exitcode}, without a Python exception"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = "a signal"
    hint = "; if nobody sent it, memory ran out" if name == "SIGKILL" else ""
    return f"died of signal {name} ({-exitcode}){hint}"


def raised(failure: Failure) -> list[str]:
    """A failure and its lines. A rank that lost a peer is told like one that still waits for it."""
    message, place = failure.message.strip(), failure.place
    if failure.lost_peer and place.collective:
        return waiting(place)
    if failure.type == "SystemExit":
        return [f"left with sys.exit({message})", *lines_of(place)]
    return [f"raised {failure.type}" + f": {message}" * bool(message), *lines_of(place)]


def dropped(ranks: list[int]) -> str:
    """The likely reason of a deadlock in which messages come to these ranks that nobody takes."""
    return (
        f"{_ranks(ranks)} received a message that nothing waits for any more: a collective was "
        f"started there (async_op=True) and its Work was dropped. Keep every Work and wait for it."
    )


def waiting(place: Place) -> list[str]:
    """What a running rank does, and its lines."""
    if not place.frames:
        return ["had not begun"]
    if not place.collective:
        return ["ran, outside of any collective", *lines_of(place)]
    return [f"waited in {place.collective}", *lines_of(place)[-2:]]


def lines_of(place: Place | None, before: str = "") -> list[str]:
    """The source lines of a place, indented, outermost first."""
    return [f"    {before}{_where(frame)}" for frame in place.frames] if place else []


def _where(frame: Frame) -> str:
    name = frame.function.rpartition("<locals>.")[2]
    function = "" if name == "<module>" else f", in {name}"
    text = f":  {frame.text}" if frame.text else ""
    return f"line {frame.line} of {_file_name(frame.file)}{function}{text}"


def _file_name(file: str) -> str:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if label := getattr(getattr(shell, "compile", None), "format_code_name", lambda f: None)(file):
        return " ".join(label)  # "Cell In[3]"
    try:
        near = os.path.relpath(file)
    except ValueError:  # another drive
        return file
    return file if near.startswith("..") else near


def grouped(told: dict[int, list[str]]) -> list[str]:
    """One paragraph for all ranks that have the same to tell; ranks by number."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(told):
        groups.setdefault(tuple(told[rank]), []).append(rank)
    result = []
    for (first, *rest), ranks in groups.items():
        result += [f"{_ranks(ranks)} {first}", *rest]
    return result


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks))


# --- what the ranks printed ----------------------------------------------------------------------


def merged(outputs: Sequence[str]) -> list[str]:
    """The lines of all ranks: what all printed once ("[all ranks] ..."), the rest in rank order.

    A line of rank 0 is common if each other rank has it among its next LOOK_AHEAD lines.
    """
    lines = [output.splitlines() for output in outputs]
    at = [0] * len(lines)
    result: list[str] = []

    def show_own(ends: Sequence[int]) -> None:
        for rank, end in enumerate(ends):
            result.extend(f"[rank {rank}] {line}" for line in lines[rank][at[rank] : end])

    for here, line in enumerate(lines[0] if len(lines) > 1 else []):
        ends = [here]
        for own, start in zip(lines[1:], at[1:]):
            if line not in own[start : start + LOOK_AHEAD]:
                break
            ends.append(own.index(line, start))
        else:
            show_own(ends)
            result.append(f"[all ranks] {line}")
            at = [end + 1 for end in ends]
    show_own([len(own) for own in lines])
    return result
