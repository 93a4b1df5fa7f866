"""Real ranks from anywhere: a script, a test, a cell of a notebook.

    def train(rank, world_size, steps):
        ...
        return losses

    losses = launch(train, 4, 20)          # [rank 0's losses, rank 1's, ...]

Every rank is a process of its own with a process group that has been set up. A fork server that
has imported torch once forks the ranks, in 0.1 s, where new processes would take seconds. The
function travels by cloudpickle, so it may be a lambda or stand in a cell. The ranks find each other
through a file, so no port is needed, and any number of launches run side by side.

What goes wrong is told in the user's own lines: a rank that raises or dies ends the others at once
and is named first; ranks that all wait for each other are recognised and shown where they wait.

`_parcel.py` carries the function over, `_rank.py` is what runs in the ranks, `_watch.py` follows
them, `_explain.py` puts into words what went wrong.
"""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import operator
import os
import shutil
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait

from . import _parcel, _rank
from ._watch import Peer, Watch, processes

__all__ = ["RankError", "launch", "warm_up"]

MAX_RANKS = 64
BYTES_PER_RANK = 100 << 20  # of memory that a rank needs for itself before it has made a tensor
# What every rank would otherwise import by itself, for seconds: torch._dynamo comes with the first
# optimizer. Modules of this package are not among them: they may change while the server lives.
PRELOAD = ["torch", "torch._dynamo", "torch.distributed.optim", "cloudpickle"]

_server_owner: int | None = None  # the process that started the fork server


class RankError(RuntimeError):
    """Something went wrong on the ranks. The message says what, the first cause first.

    kind: "raised", "died", "deadlock" or "timeout".
    tracebacks: the whole Python traceback of each rank that raised, as text.
    output: what the ranks had printed.
    """

    kind = ""
    output = ""

    def __init__(self, message: str):
        super().__init__(message)
        self.tracebacks: dict[int, str] = {}

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message. The launcher's own frames would only hide it."""
        return f"RankError: {self}".splitlines()


class RankTraceback(Exception):
    """The cause of a RankError: the traceback of the rank that raised first, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def launch(
    fn: Callable,
    world_size: int = 4,
    *args: object,
    timeout: float | None = 60.0,
    quiet: bool = False,
    backend: str | None = None,
    live: Callable[[str], object] | None = None,
) -> list:
    """Call `fn(rank, world_size, *args)` on `world_size` ranks; their results in rank order.

    Every rank is a new process on this host, with one thread for tensor arithmetic and with this
    process's environment, working directory and import path. `fn` may come from a module, a cell,
    a lambda or a closure; what it uses from `__main__`, from a cell or from a test module is
    copied, so a change that a rank makes to it stays in that rank. Results are copied back.

    timeout: seconds that all of it may take, None for no limit.
    quiet: do not show what the ranks print. Otherwise it is shown at the end: lines that all ranks
        printed once, as "[all ranks] ...", the others in rank order. A RankError has it as well.
    backend: "gloo" or "nccl"; by default what `zero.comm.init` chooses.
    live: is called with every line that rank 0 writes to stdout, soon after it was written; these
        lines are then not shown again.

    If the environment variable ZERO_PRELOAD names a "module:function", every rank calls it before
    `fn` arrives. At the end the ranks just stop: their exit hooks do not run.

    Under torchrun (TORCHELASTIC_RUN_ID, or RANK and WORLD_SIZE, in the environment) this process
    is one of the ranks already. Then no process is started: `fn` is called here, with torchrun's
    rank and world size, the list has its result alone, and what it raises comes through as it is.

    Raises RankError if a rank raises, dies, waits for ever or exceeds `timeout`; then all ranks
    have been ended. Raises TypeError or ValueError, before anything is started, for arguments that
    cannot work. On KeyboardInterrupt the ranks are ended too.
    """
    world_size = _check(fn, world_size, args, timeout, backend)
    if _rank.inside:
        raise RuntimeError("launch was called inside of a rank: ranks cannot start ranks")
    if "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return [_call_here(fn, args, backend, timeout, quiet)]
    folder = tempfile.mkdtemp(prefix="zero-launch-")
    ranks: list[Peer] = []
    output = ""
    try:
        _parcel.pack(folder, fn, args)
        _start(ranks, world_size, folder, backend, quiet)
        watch = Watch(ranks, folder, timeout, live)
        try:
            reason = watch.until_the_end()
        finally:
            output = watch.show_output(quiet)
        if reason:
            raise _error(watch, reason, output)
        return [_parcel.result(folder, rank.number) for rank in ranks]
    finally:
        _end(ranks)
        shutil.rmtree(folder, ignore_errors=True)


def warm_up() -> None:
    """Start the fork server now, so that the first launch is as quick as the later ones.

    Processes that are forked from this one afterwards use the same server.
    """
    global _server_owner
    if _method() != "forkserver":
        return
    from multiprocessing import forkserver  # not on Windows

    server = forkserver._forkserver
    if _server_owner not in (None, os.getpid()):
        # A fork of the process that started the server: it may use it, but cannot wait for it.
        server.ensure_running = lambda: None
        return
    _server_owner = os.getpid()
    server.set_forkserver_preload(PRELOAD)
    # A Ctrl-C while torch is being imported must not reach the server: it inherits this mask.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _error(watch: Watch, reason: str, output: str) -> RankError:
    """The exception for what the ranks went through."""
    error = RankError(watch.report(reason))
    failed = [p for p in watch.peers if p.is_cause] or [p for p in watch.peers if p.failure]
    error.kind = failed[0].state if reason == "failed" else reason
    error.output = output
    error.tracebacks = {p.number: p.failure.traceback for p in watch.peers if p.failure}
    if failed and failed[0].failure:
        error.__cause__ = RankTraceback(failed[0].failure.traceback)
    return error


# --- before the start ----------------------------------------------------------------------------


def _check(fn, world_size, args, timeout, backend) -> int:
    """The world size as an int; raises for what cannot work, before anything has been started."""
    if not callable(fn):
        raise TypeError(
            f"the first argument of launch must be a function, but is {fn!r} "
            f"({type(fn).__name__}); write launch(fn, 4)"
        )
    if isinstance(world_size, bool) or not hasattr(world_size, "__index__"):
        raise TypeError(
            f"world_size must be a whole number of ranks, but is {world_size!r} "
            f"({type(world_size).__name__}); write launch(fn, 4, ...)"
        )
    n = operator.index(world_size)
    most = min(MAX_RANKS, max(1, _free_memory() // BYTES_PER_RANK))
    if not 1 <= n <= most:
        why = "every rank is a process, with about 0.1 GB of its own"
        if n > most and most < MAX_RANKS:
            why = f"{_free_memory() / 1e9:.1f} GB of memory are free, and a rank needs 0.1 GB"
        raise ValueError(f"world_size is {n}, but must be from 1 to {most}: {why}")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise ValueError(f"timeout is {timeout!r}, but must be seconds above 0, or None")
    if backend not in (None, "gloo", "nccl"):
        raise ValueError(f"backend is {backend!r}, but must be 'gloo', 'nccl' or None")
    with contextlib.suppress(ValueError):  # builtins may have no signature to look at
        signature = inspect.signature(fn)
        try:
            signature.bind(0, n, *args)
        except TypeError as error:
            name = getattr(fn, "__name__", repr(fn))
            raise TypeError(
                f"launch calls {name}(rank, world_size, ...) with {2 + len(args)} arguments, but "
                f"it is defined as {name}{signature}: {error}"
            ) from None
    return n


def _free_memory() -> int:
    """Bytes of memory that new processes can have, where the system tells; else no limit."""
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 60


def _call_here(fn, args, backend, timeout, quiet):
    from . import comm

    comm.init(backend, timeout=timeout or 24 * 3600.0, quiet=quiet)
    return fn(comm.rank(), comm.world_size(), *args)


def _method() -> str:
    """Forking after torch has been imported is safe on Linux only."""
    return "forkserver" if sys.platform.startswith("linux") else "spawn"


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep multiprocessing from running the user's script again in each rank.

    It would import what is `__main__` here. What a rank needs of that comes by cloudpickle.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _start(ranks: list[Peer], world_size: int, folder: str, backend, quiet: bool) -> None:
    """Start the processes; `ranks` grows as they come, so that they can be ended at any moment."""
    context = multiprocessing.get_context(_method())
    with processes, _without_main():
        warm_up()
        for number in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_rank.main, args=(number, world_size, folder, theirs, backend, quiet)
            )
            ranks.append(Peer(number, process, ours))
            with theirs:
                process.start()


def _end(ranks: list[Peer]) -> None:
    """End every rank that still runs: a rank stops when its connection closes."""
    for rank in ranks:
        rank.pipe.close()
    end = time.monotonic() + 1.0
    for process in [rank.process for rank in ranks if rank.process.pid is not None]:
        wait([process.sentinel], max(0.0, end - time.monotonic()))
        with processes:
            process.kill()
            process.join()
