"""Saves that die, at every step and at any moment; disks that are full; ranks that stay away.

In the test suite some steps and a dozen random moments are tried. ZERO_FULL=1 tries every step of
every rank, with each rank as the victim, and a hundred random moments.
"""

import errno
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import threading
import time

import pytest
import torch

import checkpoints
import helpers
import zero
from checkpoints import on_ranks
from zero import comm, disk
from zero.checkpoint import CheckpointError

FULL = os.environ.get("ZERO_FULL") == "1"
MODEL, STAGE = "groups", 2
SURVIVORS = 10.0  # seconds until they must have ended


def build(rank, world_size):
    return checkpoints.build(rank, world_size, MODEL, STAGE)


def states_by_step(rank, world_size, root, steps):
    """What a run that nobody disturbs has after each step; it saves step 2 in `root`."""
    model, opt = build(rank, world_size)
    found = {}
    for step in range(1, steps + 1):
        helpers.train_sharded(model, opt, [step - 1])
        found[step] = checkpoints.kept(opt)
        if step == 2:
            zero.checkpoint.save(root, model, opt, 2)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder with a checkpoint of step 2, and the states of 2 ranks by step."""
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    by_rank = on_ranks(states_by_step, 2, str(root), 40)
    return root, {step: [mine[step] for mine in by_rank] for step in by_rank[0]}


def load_all(rank, world_size, roots):
    """What each of the folders has to offer: step and states. Then a save that clears up."""
    found = []
    for root in roots:
        model, opt = build(rank, world_size)
        at = zero.checkpoint.load(root, model, opt)
        found.append((at.step, checkpoints.kept(opt)))
        zero.checkpoint.save(root, model, opt, at.step + 1)
        assert not [name for name in os.listdir(root) if name.startswith(".")]
        zero.checkpoint.verify(root)
    return found


def assert_complete(roots, states):
    """A complete checkpoint is in each folder, and what is loaded is what that step had."""
    steps = []
    for step, found in on_ranks(load_all, 1, list(map(str, roots)))[0]:
        checkpoints.assert_same_states([found], states[step])
        steps.append(step)
    return steps


# --- killed at every step ---------------------------------------------------------------------


def save_step_4(rank, world_size, root, async_save, hook_of):
    """Go on from step 2 and save step 4, while `hook_of(rank, pids)` watches."""
    model, opt = build(rank, world_size)
    zero.checkpoint.load(root, model, opt)
    helpers.train_sharded(model, opt, (2, 3))
    pids = comm.all_gather_small(torch.tensor([os.getpid()])).flatten().tolist()
    disk.hook = hook_of(rank, pids)
    zero.checkpoint.save(root, model, opt, 4, keep_last=1, async_save=async_save)
    if async_save:
        zero.checkpoint.wait()
    return getattr(disk.hook, "steps", None)


def recording(rank, pids):
    steps = []

    def hook(step):
        steps.append(step)

    hook.steps = steps
    return hook


def killing(at_rank, number, victim, when):
    """When rank `at_rank` comes to its step `number`, rank `victim` is killed, then it goes on.

    The file `when` says at what time."""

    def hook_of(rank, pids):
        count = iter(range(10**6))

        def hook(step):
            if next(count) == number:
                when.write_text(str(time.monotonic()))
                os.kill(pids[victim], signal.SIGKILL)
                while victim != rank and os.path.exists(f"/proc/{pids[victim]}/fd/0"):
                    time.sleep(0.001)

        return hook if rank == at_rank else None

    return hook_of


def copy_of(root, folder, name):
    shutil.copytree(root, folder / name)
    return folder / name


def chosen(steps):
    """The numbers of the steps to try: all, or one of each kind; of many writes the middle one."""
    if FULL:
        return range(len(steps))
    kinds = {}
    for number, step in enumerate(steps):
        kinds.setdefault(step, []).append(number)
    return sorted(numbers[len(numbers) // 2] for numbers in kinds.values())


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("async_save", [False, True])
def test_killed_at_every_step(async_save, undisturbed, tmp_path, capsys):
    """SIGKILL at each step of a save, on the rank that is there and on the other (F2, F21).

    `keep_last` is 1, so that the only other checkpoint is removed in the same save. The surviving
    rank ends, too, within the 10 seconds that F2 gives it.
    """
    root, states = undisturbed
    steps = on_ranks(save_step_4, 2, str(copy_of(root, tmp_path, "dry")), async_save, recording)
    assert {"create rank-00001.safetensors", "note entry-00001.json"} < set(steps[1])
    assert {"sync manifest.json", "rename step-00000004", "rename latest"} < set(steps[0])
    assert "remove .removed.step-00000002" in steps[0]
    pointed = steps[0].index("rename latest")
    cases = [(r, n, v) for r in (0, 1) for n in chosen(steps[r]) for v in (0, 1)]
    if not FULL:
        cases = cases[async_save :: 2 + 2 * async_save]
    roots, slowest = [], 0.0
    for at_rank, number, victim in cases:
        roots.append(copy_of(root, tmp_path, f"{at_rank}-{number}-{victim}"))
        when = tmp_path / f"{roots[-1].name}.killed"
        with pytest.raises(zero.RankError) as caught:
            args = (str(roots[-1]), async_save, killing(at_rank, number, victim, when))
            on_ranks(save_step_4, 2, *args)
        slowest = max(slowest, time.monotonic() - float(when.read_text()))
        assert "SIGKILL" in str(caught.value)
        assert slowest < SURVIVORS
    found = assert_complete(roots, states)
    for (at_rank, number, victim), step in zip(cases, found, strict=True):
        if at_rank == victim == 0:
            assert step == (4 if number > pointed else 2), steps[0][number]
    with capsys.disabled():
        print(
            f"\n{'background ' * async_save}saves killed at {len(cases)} of "
            f"{2 * sum(map(len, steps))} steps x victims: {found.count(2)} left step 2, "
            f"{found.count(4)} step 4; survivors had ended {slowest:.1f} s later at the latest"
        )


# --- killed at any moment ---------------------------------------------------------------------


def die(note):
    """Leave a note of the time, and end."""
    with open(note, "w") as file:
        file.write(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def save_until_killed(rank, world_size, root, victim, delay, async_save):
    """Train and save every step; `victim` dies `delay` seconds after the first save began."""
    model, opt = build(rank, world_size)
    at = zero.checkpoint.load(root, model, opt)
    comm.barrier()
    if rank == victim:
        threading.Timer(delay, die, [f"{root}.killed"]).start()
    for step in range(at.step + 1, 41):
        helpers.train_sharded(model, opt, [step - 1])
        zero.checkpoint.save(root, model, opt, step, keep_last=1 + step % 2, async_save=async_save)
        if rank == 0 and not async_save:
            with open(f"{root}.new", "w") as file:
                file.write(str(step))
            os.replace(f"{root}.new", f"{root}.done")  # rank 0 may die between the two lines above
    time.sleep(60)


@pytest.mark.timeout(1500)
def test_killed_at_random_moments(undisturbed, tmp_path, capsys):
    """Whenever a rank dies, what had been saved is there, and nothing else is taken for it."""
    root, states = undisturbed
    random.seed(0)
    count, roots, least = 100 if FULL else 12, [], []
    for number in range(count):
        roots.append(copy_of(root, tmp_path, f"root-{number}"))
        args = (str(roots[-1]), number % 2, random.uniform(0.0, 0.6), number % 4 == 3)
        with pytest.raises(zero.RankError, match="SIGKILL"):
            on_ranks(save_until_killed, 2, *args)
        killed = float(roots[-1].with_name(f"root-{number}.killed").read_text())
        assert time.monotonic() - killed < SURVIVORS
        done = roots[-1].with_name(f"root-{number}.done")
        least.append(int(done.read_text()) if done.exists() else 2)
    found = assert_complete(roots, states)
    for step, saved in zip(found, least, strict=True):
        assert step >= saved
    with capsys.disabled():
        print(f"\n{count} saves killed at random moments; steps found: {sorted(found)}")


# --- errors that nobody dies of ---------------------------------------------------------------


def fail_at_every_step(rank, world_size, root, async_save):
    """Step by step of a save, on either rank, the disk is full. The error texts, by step."""
    model, opt = build(rank, world_size)
    helpers.train_sharded(model, opt, 2)
    zero.checkpoint.save(root, model, opt, 2)
    disk.hook = recording(rank, [])
    zero.checkpoint.save(root, model, opt, 3)
    mine = len(disk.hook.steps)
    counts = comm.all_gather_small(torch.tensor([mine])).flatten().tolist()
    texts = []
    for at_rank, count in enumerate(counts):
        for number in range(count):
            disk.hook = full_at(number) if rank == at_rank else None
            try:
                zero.checkpoint.save(root, model, opt, 4, async_save=async_save)
                zero.checkpoint.wait()
                texts.append("")
            except CheckpointError as error:
                texts.append(str(error))
            disk.hook = None
            zero.checkpoint.load(root, model, opt)
    zero.checkpoint.save(root, model, opt, 5)
    return texts, checkpoints.kept(opt)


def full_at(number):
    count = iter(range(10**6))

    def hook(step):
        if next(count) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), step)

    return hook


@pytest.mark.parametrize("async_save", [False, True])
def test_full_disk_at_every_step(async_save, undisturbed, tmp_path):
    """Both ranks raise the same error, which names what failed; the old checkpoint stays."""
    root = tmp_path / "root"
    (texts, _), (other, _) = on_ranks(fail_at_every_step, 2, str(root), async_save)
    assert texts == other
    assert len(texts) > 25
    for text in texts:
        assert "No space left on device" in text
        assert re.search(r"rank [01]: \w+ [\w.-]+: No space", text), text
        assert ("in the background" in text) == async_save or "make" in text or "remove" in text
    assert not [path.name for path in root.iterdir() if path.name.startswith(".")]
    (step, found), *_ = on_ranks(load_all, 1, [str(root)])[0]
    assert step == 5
    checkpoints.assert_same_states([found], undisturbed[1][2])


def test_a_file_that_may_not_grow(tmp_path):
    """A real limit of the system, in the middle of a shard, on one rank."""

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        zero.checkpoint.save(tmp_path, model, opt, 1)
        if rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        with pytest.raises(CheckpointError, match=r"rank 1: .*File too large") as caught:
            zero.checkpoint.save(tmp_path, model, opt, 2)
        if rank == 1:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert zero.checkpoint.load(tmp_path, model, opt).step == 1
        zero.checkpoint.save(tmp_path, model, opt, 2)
        return str(caught.value)

    first, second = on_ranks(run, 2)
    assert first == second
    assert zero.checkpoint.verify(tmp_path)["step"] == 2


def test_a_small_file_system(tmp_path):
    """A tmpfs with room for one checkpoint and a half."""
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this process may not mount a file system")

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        zero.checkpoint.save(small / "root", model, opt, 1)
        for step in range(2, 6):
            with pytest.raises(CheckpointError, match="No space left on device"):
                for more in range(9):
                    zero.checkpoint.save(small / "root", model, opt, 10 * step + more, keep_last=9)
            assert zero.checkpoint.load(small / "root", model, opt).step % 10 < 9

    try:
        on_ranks(run, 2)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_folder_that_may_not_be_written(tmp_path):
    root = tmp_path / "root"

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        zero.checkpoint.save(root, model, opt, 1)
        if os.geteuid() == 0:  # who may do anything; be somebody else for a while
            os.seteuid(65534)
        elif rank == 0:
            root.chmod(0o555)
        with pytest.raises(CheckpointError, match="Permission denied") as caught:
            zero.checkpoint.save(root, model, opt, 2)
        assert str(root) in str(caught.value)
        if os.getuid() == 0:
            os.seteuid(0)
        elif rank == 0:
            root.chmod(0o755)
        comm.barrier()
        assert zero.checkpoint.load(root, model, opt).step == 1

    on_ranks(run, 2)


def test_left_overs_of_saves_that_died_are_removed(tmp_path):
    for name in (".step-00000004", ".removed.step-00000001"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
    (tmp_path / ".latest").write_text("step-")
    (tmp_path / "notes.txt").write_text("mine")

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        with pytest.raises(CheckpointError, match="holds no checkpoint"):
            zero.checkpoint.load(tmp_path, model, opt)
        zero.checkpoint.save(tmp_path, model, opt, 4)
        return zero.checkpoint.load(tmp_path, model, opt).step

    assert on_ranks(run, 2) == [4, 4]
    assert sorted(os.listdir(tmp_path)) == ["latest", "notes.txt", "step-00000004"]


# --- who must call it, and with what ----------------------------------------------------------


@pytest.mark.parametrize("stage", helpers.STAGES)
def test_save_on_one_rank_only(stage, tmp_path):
    """`if rank == 0: save()`, then a training step: both ranks end with an error, and within 8
    seconds (F1)."""

    def run(rank, world_size):
        model, opt = checkpoints.build(rank, world_size, MODEL, stage)
        if rank == 0:
            zero.checkpoint.save(tmp_path, model, opt, 0)
        helpers.train_sharded(model, opt, 1)

    with pytest.raises(zero.RankError) as caught:
        helpers.on_ranks(run, 2, timeout=8)
    text = str(caught.value)
    assert caught.value.kind == "raised"
    assert "zero.checkpoint.save is collective, all ranks must call it; ranks 1 did not" in text
    assert caught.value.tracebacks.keys() == {0, 1}
    assert "rank 0: all_gather_small(zero.checkpoint.save" in caught.value.tracebacks[1]
    assert not list(tmp_path.iterdir())


def test_save_while_another_rank_leaves_or_loads(tmp_path):
    def leaves(rank, world_size):
        model, opt = build(rank, world_size)
        if rank == 0:
            zero.checkpoint.save(tmp_path, model, opt, 0)

    with pytest.raises(zero.RankError, match=r"zero\.checkpoint\.save"):
        on_ranks(leaves, 2)

    def loads(rank, world_size):
        model, opt = build(rank, world_size)
        with pytest.raises(CheckpointError, match=f"ranks {1 - rank} did not call it"):
            if rank == 0:
                zero.checkpoint.save(tmp_path, model, opt, 0)
            else:
                zero.checkpoint.load(tmp_path, model, opt)

    on_ranks(loads, 2)


def test_ranks_that_disagree(tmp_path):
    def run(rank, world_size):
        model, opt = build(rank, world_size)
        refused = []

        def refuse(**arguments):
            with pytest.raises(CheckpointError) as caught:
                zero.checkpoint.save(
                    **{"root": tmp_path, "model": model, "opt": opt, "step": 1, **arguments}
                )
            refused.append(str(caught.value))

        refuse(step=rank)
        refuse(root=tmp_path / str(rank))
        refuse(step=-1)
        refuse(step=True)
        refuse(keep_last=0)
        refuse(model=helpers.m0())
        refuse(extra={"rates": [1.0, torch.ones(1)] if rank else []})
        refuse(extra={3: 4})
        opt.param_groups[1]["name"] = object()
        refuse()
        with pytest.raises(RuntimeError, match=r"zero.checkpoint.save"):
            opt.state_dict()
        return refused

    first, second = on_ranks(run, 2)
    assert first == second
    for text, expected in zip(
        first,
        [
            "step is '0' on rank 0 and '1' on rank 1; it must be the same on all ranks",
            "on rank 1; it must be the same on all ranks",
            "step is -1; it must be a whole number, at least 0",
            "step is True; it must be",
            "keep_last is 0; it must be",
            "not the model that was given to zero.shard",
            "rank 1: extra['rates'][1] is a Tensor; a checkpoint keeps only numbers, text",
            "extra has the key 3",
            "param_groups[1]['name'] is a object",
        ],
        strict=True,
    ):
        assert expected in text
    assert not list(tmp_path.iterdir())


def test_background_errors_surface(tmp_path):
    """At the next save, at a load, or at wait(); then the next save works."""

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        zero.checkpoint.save(tmp_path, model, opt, 1)
        nexts = [
            lambda: zero.checkpoint.save(tmp_path, model, opt, 9),
            lambda: zero.checkpoint.load(tmp_path, model, opt),
            zero.checkpoint.wait,
        ]
        for step, then in enumerate(nexts, 2):
            disk.hook = full_at(3) if rank == 1 else None
            zero.checkpoint.save(tmp_path, model, opt, step, async_save=True)
            with pytest.raises(CheckpointError, match=f"step {step} was not saved in the backgr"):
                then()
            assert zero.checkpoint.wait() is None
        disk.hook = None
        assert zero.checkpoint.load(tmp_path, model, opt).step == 1
        return zero.checkpoint.save(tmp_path, model, opt, 9).name

    assert on_ranks(run, 2) == ["step-00000009"] * 2
