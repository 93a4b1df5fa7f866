"""What `zero.launch` says when something goes wrong on the ranks (cases G2 and G1)."""

import atexit
import ctypes
import inspect
import os
import re
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zero
from zero import comm
from zero.launch import RankError, launch

pytestmark = pytest.mark.timeout(40)
watch = sys.modules["zero._watch"]


def failure(fn, world_size=3, *args, **options) -> RankError:
    with pytest.raises(RankError) as caught:
        launch(fn, world_size, *args, **options)
    return caught.value


def line_of(fn, text: str) -> str:
    """How an error shows the line of `fn` that has `text`."""
    lines, start = inspect.getsourcelines(fn)
    number = next(i for i, line in enumerate(lines) if text in line)
    file = os.path.relpath(inspect.getsourcefile(fn))
    return f"    line {start + number} of {file}, in {fn.__name__}:  {lines[number].strip()}"


# --- exceptions ----------------------------------------------------------------------------------


def one_raises(rank, world_size):
    print("got so far")
    if rank == 1:
        time.sleep(0.5)  # until the others wait for it
        raise ValueError(f"no {rank}")
    comm.all_reduce(torch.ones(4), name="loss")


def test_a_raising_rank_is_named_first_with_its_line(capsys):
    error = failure(one_raises)
    assert str(error).splitlines() == [
        "rank 1 raised ValueError: no 1",
        line_of(one_raises, "raise Val"),
        "ranks 0, 2 waited in all_reduce(loss, 4 x float32)",
        line_of(one_raises, "comm.all"),
    ]
    assert error.kind == "raised"
    assert "[all ranks] got so far\n" in capsys.readouterr().out
    assert "[all ranks] got so far\n" in error.output
    assert list(error.tracebacks) == [1]
    assert 'raise ValueError(f"no {rank}")\nValueError: no 1\n' in error.tracebacks[1]
    assert "_rank.py" not in error.tracebacks[1]
    assert error._render_traceback_()[0] == "RankError: rank 1 raised ValueError: no 1"


def test_output_is_kept_when_quiet(capsys):
    assert "[all ranks] got so far\n" in failure(one_raises, quiet=True).output
    assert capsys.readouterr().out == ""


def everybody_raises(rank, world_size):
    dist.barrier()
    helper(rank)


def helper(rank):
    comm.reduce_scatter(torch.ones(7))


def test_the_same_error_on_all_ranks_is_told_once():
    lines = str(failure(everybody_raises)).splitlines()
    assert lines[0].startswith("ranks 0 to 2 raised ValueError: reduce_scatter cuts the tensor")
    assert lines[1:] == [line_of(everybody_raises, "helper"), line_of(helper, "comm.red")]


def test_a_rank_that_raises_before_the_group_is_set_up(tmp_path, monkeypatch):
    (tmp_path / "hooks.py").write_text(
        "import os\n"
        "def install():\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise OSError('no disk')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ZERO_PRELOAD", "hooks:install")
    lines = str(failure(one_raises)).splitlines()
    assert lines[0] == "rank 1 raised OSError: no disk"
    assert lines[1].endswith("hooks.py, in install:  raise OSError('no disk')")
    assert lines[2:] == ["ranks 0, 2 had not begun"]


@pytest.mark.parametrize("moment", ["forward", "backward"])
def test_an_error_in_a_hook_shows_the_hook(moment):
    def hook(*_):
        if dist.get_rank() == 1:
            raise RuntimeError(f"bad {moment}")

    def step(rank, world_size):
        model = nn.Linear(2, 2)
        if moment == "forward":
            model.register_forward_pre_hook(hook)
        else:
            model.register_full_backward_hook(hook)
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
        comm.barrier()

    lines = str(failure(step)).splitlines()
    assert lines[0] == f"rank 1 raised RuntimeError: bad {moment}"
    assert lines[2] == line_of(hook, "raise")


def test_results_that_cannot_be_sent_back():
    error = failure(lambda rank, world_size: (i for i in range(3)))
    assert "the result of <lambda> (a generator) cannot be sent back" in str(error)
    assert "Return tensors, numbers" in str(error)


# --- deaths --------------------------------------------------------------------------------------


def one_ends(rank, world_size, how):
    if rank == 1:
        time.sleep(0.5)  # until the others wait for it
        how()
    comm.barrier()


ENDS = {
    "left with sys.exit(3)": lambda: sys.exit(3),
    "died with exit code 3, without a Python exception": lambda: os._exit(3),
    "died with exit code 0, without a Python exception": lambda: os._exit(0),
    "died of signal SIGKILL (9)": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "died of signal SIGSEGV (11)": lambda: ctypes.string_at(0),
    "died of signal SIGABRT (6)": os.abort,
}


@pytest.mark.parametrize("words", ENDS)
def test_a_rank_that_ends_is_named_first(words):
    error = failure(one_ends, 3, ENDS[words])
    lines = str(error).splitlines()
    assert lines[0].startswith(f"rank 1 {words}")
    if "SEGV" in words or "ABRT" in words:  # C code died: Python's line is shown all the same
        assert line_of(one_ends, "how()") in lines or "string_at" in lines[1]
    others = lines.index("ranks 0, 2 waited in all_gather_small(barrier, 1 x uint8)")
    assert lines[others + 1] == line_of(one_ends, "comm.barrier")
    assert error.kind == ("raised" if "sys.exit" in words else "died")


# --- waiting for ever ----------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    """Deadlocks are declared after half a second: for tests that cause or avoid them."""
    monkeypatch.setattr(watch, "PATIENCE", 0.5)
    monkeypatch.setattr(watch, "IDLE", 0.01)


def one_returns(rank, world_size):
    if rank == 0:
        return
    comm.all_reduce(torch.ones(2), name="loss")


def test_a_skipped_collective_is_a_deadlock():
    """With the real patience, which is meant to be under 5 seconds."""
    error = failure(one_returns)
    assert error.kind == "deadlock"
    assert str(error).splitlines() == [
        "deadlock: no rank can go on, each waits for another one",
        "rank 0 had returned",
        "ranks 1, 2 waited in all_reduce(loss, 2 x float32)",
        line_of(one_returns, "comm.all_reduce"),
    ]


def crossed(rank, world_size):
    if rank == 0:
        dist.barrier()
    if rank == 1:
        dist.recv(torch.ones(1), src=0)
    dist.irecv(torch.ones(1), src=1).wait()


def test_torch_collectives_and_handles_that_wait_for_each_other(impatient):
    lines = str(failure(crossed)).splitlines()
    for rank, name, text in ((0, "barrier", "barrier"), (1, "recv", "recv("), (2, "wait()", "ir")):
        at = lines.index(f"rank {rank} waited in {name}")
        assert lines[at + 1] == line_of(crossed, text)


def test_an_unfinished_handle_of_ours(impatient):
    def gather(rank, world_size):
        if rank:
            comm.all_gather(torch.ones(6), async_op=True, name="weights").wait()

    lines = str(failure(gather)).splitlines()
    assert "ranks 1, 2 waited in all_gather(weights, 6 x float32)" in lines


def test_backward_of_ddp_on_some_ranks_only(impatient):
    def backward(rank, world_size):
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        loss = model(torch.ones(2)).sum()
        if rank:
            loss.backward()

    lines = str(failure(backward)).splitlines()
    assert lines[2:] == [
        "ranks 1, 2 waited in backward",
        line_of(backward, "loss.backward"),
    ]


def test_waiting_inside_of_zero_shows_the_users_line_and_ours(impatient):
    def train(rank, world_size):
        model = nn.Linear(2, 2)
        opt = zero.shard(model, stage=1, lr=0.1)
        model(torch.ones(2)).sum().backward()
        if rank:
            opt.step()

    lines = str(failure(train)).splitlines()
    at = lines.index(line_of(train, "opt.step()"))
    assert lines[at - 1].startswith("ranks 1, 2 waited in ")
    assert re.search(r"line \d+ of .*zero.\w+\.py, in ", lines[at + 1])


def test_computing_sleeping_and_many_collectives_are_no_deadlock(impatient):
    def busy(rank, world_size):
        end = time.monotonic() + 1.5
        while rank == 1 and time.monotonic() < end:
            pass
        if rank == 2:
            time.sleep(1.5)
        comm.barrier()
        for _ in range(300):
            comm.barrier()
        return rank

    assert launch(busy, 3) == [0, 1, 2]


def test_a_rank_that_comes_late_to_the_last_collective_is_no_deadlock(impatient):
    """Rank 0 has waited long when rank 1 comes, and ends while the last answers are old."""

    def late(rank, world_size):
        if rank == 1:
            time.sleep(1.2)
        comm.barrier()
        if rank == 0:
            time.sleep(0.4)
        return rank

    assert launch(late, 3) == [0, 1, 2]


def test_everything_else_ends_at_the_timeout():
    def sleeps(rank, world_size):
        if rank == 1:
            time.sleep(1000)
        comm.barrier()

    error = failure(sleeps, timeout=3)
    lines = str(error).splitlines()
    assert error.kind == "timeout"
    assert lines[0] == "not done after 3 s (timeout=3)"
    assert lines[lines.index("rank 1 ran, outside of any collective") + 1] == line_of(
        sleeps, "time.sleep"
    )


def test_ranks_that_disagree_all_say_so():
    def differ(rank, world_size):
        comm.all_reduce(torch.ones(4 + rank), name="loss")

    message = str(failure(differ, 2))
    assert "raised MismatchError: the ranks disagree" in message
    assert "rank 1: all_reduce(loss, 5 x float32)" in message


# --- the end -------------------------------------------------------------------------------------


def test_exit_hooks_and_groups_cannot_hang_the_end():
    def leaves_much(rank, world_size):
        atexit.register(time.sleep, 1000)
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        return os.getpid()

    for pid in launch(leaves_much, 2):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_result_that_only_the_rank_can_read(tmp_path):
    def make(rank, world_size, folder):
        with open(f"{folder}/only_there.py", "w") as file:
            file.write("class Thing:\n    pass\n")
        sys.path.insert(0, folder)
        import only_there

        return only_there.Thing()

    with pytest.raises(RuntimeError, match=r"result of rank 0 cannot be rebuilt.*only_there"):
        launch(make, 1, str(tmp_path))
