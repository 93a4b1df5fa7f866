"""A rank that raises, exits or sleeps for ever, at every moment of a run (case G2)."""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import zero
from helpers import STAGES, on_ranks, sharded, train_sharded
from zero import disk

MOMENTS = ("init", "forward", "backward", "step", "save")
TIMEOUT, LIMIT = 5.0, 10.0  # seconds: of a launch, and until all its ranks must be gone


def raises():
    raise ValueError("enough")


def exits():
    os._exit(3)


def sleeps():
    time.sleep(1000)


# How rank 1 fails; then how it is named, and the line where it stands.
FAULTS = {
    raises: ("rank 1 raised ValueError: enough", 'in raises:  raise ValueError("enough")'),
    exits: ("rank 1 died with exit code 3", None),  # nobody could ask it any more
    sleeps: ("rank 1 ran, outside of any collective", "in sleeps:  time.sleep(1000)"),
}
CASES = list(itertools.product(FAULTS, MOMENTS))


def run(rank, n, how, moment, folder):
    """One step and a save at the last stage; rank 1 does not come through `moment`."""
    open(f"{folder}/{os.getpid()}.pid", "w").close()

    def fail(*_):
        if rank == 1:
            how()

    if moment == "init":
        fail()
    model, opt = sharded(rank, n, STAGES[-1])
    if moment == "forward":
        model[1].register_forward_hook(fail)
    if moment == "backward":
        model[1].register_full_backward_hook(fail)
    if moment == "step":
        opt.register_step_pre_hook(fail)
    if moment == "save":
        disk.hook = fail
    train_sharded(model, opt, 1)
    zero.checkpoint.save(f"{folder}/root", model, opt, 1)


def outcome(folder, how, moment):
    """The error of a launch, the seconds that it took, and which of its processes still live."""
    folder.mkdir()
    began = time.monotonic()
    with pytest.raises(zero.RankError) as caught:
        on_ranks(run, 2, how, moment, str(folder), timeout=TIMEOUT)
    seconds = time.monotonic() - began
    pids = [int(path.stem) for path in folder.glob("*.pid")]
    assert len(pids) == 2
    return caught.value, seconds, [pid for pid in pids if is_there(pid)]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of all cases. Those that sleep wait for the timeout side by side, the others in pairs."""
    zero.launch(lambda rank, n: None, 1, quiet=True)  # starts the server that forks the ranks
    root, found = tmp_path_factory.mktemp("moments"), {}
    for workers, group in ((5, [sleeps]), (2, [raises, exits])):
        cases = [case for case in CASES if case[0] in group]
        folders = [root / f"{how.__name__}-{moment}" for how, moment in cases]
        with ThreadPoolExecutor(workers) as pool:
            found |= zip(cases, pool.map(outcome, folders, *zip(*cases)))
    return found


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("how", "moment"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_a_rank_that_fails_ends_the_launch(how, moment, outcomes):
    """Rank 1 is named first, with the line where it stands; the other one as well; none is left.

    A save tells all ranks what went wrong on one of them, so there all raise; and a timeout has
    no culprit, so there the ranks come in order.
    """
    error, seconds, left = outcomes[how, moment]
    assert error.kind == {raises: "raised", exits: "died", sleeps: "timeout"}[how]
    assert seconds < LIMIT
    assert not left
    lines = str(error).splitlines()
    if (how, moment) == (raises, "save"):
        assert lines[0].startswith("ranks 0, 1 raised CheckpointError: step 1 was not saved")
        assert lines[0].endswith("rank 1: ValueError: enough")
        assert 'raise ValueError("enough")' in error.tracebacks[1]
        return
    named, place = FAULTS[how]
    (at,) = (i for i, line in enumerate(lines) if line.startswith(named))
    (other,) = (i for i, line in enumerate(lines) if line.startswith("rank 0 "))
    assert lines[other + 1].startswith("    line ")
    if how is sleeps:
        assert lines[0] == "not done after 5 s (timeout=5)"
    else:
        assert at == 0
    if place is not None:
        end = other if other > at else len(lines)
        assert lines[end - 1].endswith(place)
