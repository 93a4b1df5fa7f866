"""Whatever happens to the launching process, no rank outlives it; launches do not meet."""

import linecache
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest
import torch

from zero import _explain, comm
from zero.launch import launch

pytestmark = pytest.mark.timeout(120)

BUSY = """
    import os, subprocess, sys, time, torch
    from zero import comm
    from zero.launch import launch

    def fn(rank, world_size, folder):
        print("rank", rank, "says something")
        child = subprocess.Popen(["sleep", "1000"])
        for pid in (os.getpid(), child.pid):
            open(f"{folder}/{pid}.part", "w").close()
            os.rename(f"{folder}/{pid}.part", f"{folder}/{pid}.pid")
        if rank == 1:
            time.sleep(1000)
        comm.barrier()

    launch(fn, 2, sys.argv[1])
"""


def start(folder, source, *args) -> subprocess.Popen:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    return subprocess.Popen(
        [sys.executable, script, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids(folder) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.pid")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ctrl_c_leaves_no_process(tmp_path):
    """A terminal sends the signal to the whole group."""
    process = start(tmp_path, BUSY, tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert not any(map(alive, pids(tmp_path)))
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert "[rank 1] rank 1 says something\n" in out


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ranks_end_with_the_launching_process(tmp_path):
    process = start(tmp_path, BUSY, tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 4)
    process.kill()
    process.communicate(timeout=20)
    wait_for(lambda: not any(map(alive, pids(tmp_path))), seconds=10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ranks_that_return_when_nobody_listens_any_more(tmp_path):
    """Their result cannot be sent; they end all the same, with what they have started."""
    source = """
        import os, shutil, signal, subprocess, sys, time
        from zero.launch import launch

        def fn(rank, world_size, folder, launcher):
            shutil.rmtree = lambda *args, **how: time.sleep(1)  # the launch's folder is a large one
            child = subprocess.Popen(["sleep", "1000"])
            for pid in (os.getpid(), child.pid):
                open(f"{folder}/{pid}.pid", "w").close()
            while len(os.listdir(folder)) < 5:  # this script, and both ranks' files
                pass
            os.kill(launcher, signal.SIGKILL)
            time.sleep(0.3)

        launch(fn, 2, sys.argv[1], os.getpid())
    """
    process = start(tmp_path, source, tmp_path)
    process.communicate(timeout=60)
    assert len(pids(tmp_path)) == 4
    wait_for(lambda: not any(map(alive, pids(tmp_path))), seconds=10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_of_a_warm_process_share_its_fork_server(tmp_path):
    source = """
        import os, time
        from zero.launch import launch, warm_up
        from multiprocessing import forkserver

        warm_up()
        server = forkserver._forkserver._forkserver_pid
        launch(lambda rank, n: 0, 1, quiet=True)
        for child in range(2):
            if os.fork() == 0:
                parents = launch(lambda rank, n: os.getppid(), 2, quiet=True)
                os._exit(0 if parents == [server] * 2 else 1)
        print([os.wait()[1], os.wait()[1]])
        launch(lambda rank, n: 0, 1, quiet=True)
    """
    process = start(tmp_path, source)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (0, "[0, 0]\n", "")


def test_pytest_inside_of_pytest_while_this_one_launches_too(tmp_path):
    """No port, no fixed name: launches of two processes do not meet (case G6)."""
    source = """
        import torch
        from zero import comm
        from zero.launch import launch

        def total(rank, world_size):
            return comm.all_reduce(torch.ones(4), op="sum").tolist()

        def test_total():
            for _ in range(5):
                assert launch(total, 2) == [[2.0] * 4] * 2
    """
    (tmp_path / "test_inner.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]
    inner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(5):
        assert launch(lambda rank, world_size: rank, 2, quiet=True) == [0, 1]
    out, _ = inner.communicate(timeout=100)
    assert inner.returncode == 0, out


def test_looking_where_a_thread_stands_keeps_nothing_alive():
    """A frame holds its local variables: the bytes of a rank would depend on who looks at it."""
    looked = threading.Event()

    def look(thread):
        while not looked.is_set():
            linecache.clearcache()  # so that files are read each time, and other threads run
            _explain.frames_of_thread(thread)

    def short():
        local = torch.empty(1)
        time.sleep(0)
        return weakref.ref(local)

    looker = threading.Thread(target=look, args=[threading.main_thread().ident])
    looker.start()
    # With other work on all cores, the looker is stopped in the middle of its look.
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    end = time.monotonic() + 4.0
    try:
        while time.monotonic() < end:
            assert short()() is None
    finally:
        looked.set()
        looker.join()
        for other in others:
            other.kill()
            other.wait()


def exchange_while_looked_at(rank, world_size):
    main, over = threading.main_thread().ident, threading.Event()

    def look():
        while not over.is_set():
            _explain.frames_of_thread(main)
            time.sleep(0)

    looker = threading.Thread(target=look)
    looker.start()
    flat = torch.ones(6_000_000)
    for _ in range(30):
        comm.all_reduce(flat, op="max")
    over.set()
    looker.join()
    return flat.sum().item()


def test_looking_where_a_rank_stands_does_not_crash_it():
    """Local variables of a running frame, read from another thread, are a segmentation fault."""
    assert launch(exchange_while_looked_at, 2, quiet=True) == [6e6] * 2
