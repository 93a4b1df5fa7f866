"""What runs inside one rank: the process that `launch` starts.

A rank takes over the surroundings of the launching process, joins the other ranks, calls the
function and leaves its result in the launch's folder. Beside it a thread listens to the launching
process: it says where the rank stands when asked, and ends the rank when the connection closes,
which is both the orderly end and what happens when the launching process dies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import itertools
import linecache
import os
import pickle
import re
import shutil
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from . import _explain

inside = False  # whether this process is a rank that `launch` started
RECEIVED, RESULT, STDOUT, STDERR, CRASH = "received", "result", "stdout", "stderr", "crash"


def main(
    rank: int, world_size: int, folder: str, pipe: Connection, backend: str | None, quiet: bool
) -> None:
    """Run one rank; never returns.

    Files in `folder`, named by kind and rank: `received` (what the launching process sends all
    ranks), `result` (pickled), `stdout`, `stderr`, and `crash`, a stack written by faulthandler.
    """
    global inside
    inside = True
    gc.freeze()  # torch's many objects are here for good: the rank need not search them for garbage
    if hasattr(os, "setpgid"):  # Ctrl-C goes to the launching process alone: it ends the ranks
        os.setpgid(0, 0)
    sending = threading.Lock()
    listen = threading.Thread(target=_listen, args=(rank, folder, pipe, sending), daemon=True)
    listen.start()
    _keep_output(folder, rank)
    try:
        result = _call(rank, world_size, folder, backend, quiet)
        with open(f"{folder}/{RESULT}{rank}", "wb") as file:
            file.write(result)
        message = ("returned", None)
    except BaseException as error:  # SystemExit too: a rank without a result has failed
        message = ("raised", _explain.failure_of(error))
    with contextlib.suppress(Exception):  # a closed stdout must not hide the message
        sys.stdout.flush()
        sys.stderr.flush()
    with sending, contextlib.suppress(OSError):  # nobody listens: then `listen` ends all of this
        pipe.send(message)
    # The rank stays until everybody is done: its end would break the connections of the others.
    listen.join()


def _listen(rank: int, folder: str, pipe: Connection, sending: threading.Lock) -> None:
    """Answer each "where" with work done and spun so far, stack, place; end with the pipe."""
    main_thread = threading.main_thread().ident
    while True:
        try:
            pipe.recv_bytes()
        except (EOFError, OSError):
            break
        stack = _explain.frames_of_thread(main_thread)
        stack = list(itertools.takewhile(lambda frame: frame.module != __name__, stack))
        lines = hash(tuple((frame.file, frame.line) for frame in stack))
        with sending, contextlib.suppress(OSError):
            pipe.send(("place", (*_work(), lines, _explain.place_of(stack))))
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)  # in case the launching process was killed
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # this process, and any that it started
    # No destructors, no exit hooks: those of a process group can hang for ever (torch 2.13).
    os._exit(0)


def _work() -> tuple[float, float]:
    """Two numbers that stand still only while nothing happens in this rank.

    The first are its CPU seconds. Those of the calling thread, which answers, do not count: on a
    busy machine an answer may be charged for many milliseconds. Nor do those of gloo's network
    thread, which spins for ever after a message has come that nobody receives; they are the second
    number. What that thread sends counts in its place, 10 MB like a second. Under NCCL the first
    number never stands still: the device may be at work while the CPU waits.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized() and "nccl" in dist.get_backend_config():
        return time.monotonic(), 0.0
    cpu, network, sent = time.process_time() - time.thread_time(), 0.0, 0
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/stat") as file:
                name, _, fields = file.read().rpartition(")")
            if name.endswith("(gloo_tcp_loop"):
                network += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
        with open("/proc/self/io") as file:
            sent = int(re.search(r"wchar: (\d+)", file.read())[1])
    return cpu - network + sent / 1e7, network


def _keep_output(folder: str, rank: int) -> None:
    """Send stdout and stderr, also of C code, to files that survive a sudden death."""
    for number, stream, name in ((1, sys.stdout, STDOUT), (2, sys.stderr, STDERR)):
        file = os.open(f"{folder}/{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    # Left open on purpose: faulthandler writes to it when the process crashes.
    faulthandler.enable(open(f"{folder}/{CRASH}{rank}", "w"))  # noqa: SIM115


def _call(rank: int, world_size: int, folder: str, backend: str | None, quiet: bool) -> bytes:
    with open(f"{folder}/{RECEIVED}", "rb") as file:
        _move_in(pickle.load(file))
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(world_size),
            LOCAL_RANK=str(rank),
            LOCAL_WORLD_SIZE=str(world_size),
        )
        # All ranks are on this host: the loopback interface works without any network.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        _preload()
        fn, args = pickle.load(file)
    _join(rank, world_size, folder, backend, quiet)
    result = fn(rank, world_size, *args)
    return _packed(result, fn)


def _move_in(surroundings: dict) -> None:
    """Take over environment, folder and import path: the fork server has those of its own start."""
    os.environ.clear()
    os.environ.update(surroundings["environment"])
    os.chdir(surroundings["directory"])
    sys.path[:] = surroundings["path"]
    importlib.invalidate_caches()
    # Source text of notebook cells, so that tracebacks and inspect.getsource find it here too.
    linecache.cache.update(surroundings["sources"])


def _preload() -> None:
    """Call the function that ZERO_PRELOAD ("module:function") names, before anything else."""
    if hook := os.environ.get("ZERO_PRELOAD"):
        module, _, function = hook.partition(":")
        if not function:
            raise ValueError(f"ZERO_PRELOAD is {hook!r}, but must be 'module:function'")
        getattr(importlib.import_module(module), function)()


def _join(rank: int, world_size: int, folder: str, backend: str | None, quiet: bool) -> None:
    import torch

    from . import comm

    torch.set_num_threads(1)  # ranks share the cores; more threads would only push each other away
    comm.init(
        backend,
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world_size,
        # `launch` has the time limit, and says where each rank waits. This one must never be first.
        timeout=24 * 3600.0,
        quiet=quiet,
    )


def _packed(result: object, fn: object) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        name = getattr(fn, "__name__", "the function")
        raise TypeError(
            f"the result of {name} (a {type(result).__name__}) cannot be sent back to the "
            f"launching process: {error}. Return tensors, numbers, strings, or lists and dicts "
            "of them."
        ) from error
