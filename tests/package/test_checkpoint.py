"""Save and resume on as many ranks: nothing is forgotten, and nothing needs much memory."""

import gc
import itertools
import json
import os
import time
import warnings

import pytest
import torch
from safetensors import safe_open
from torch import nn

import checkpoints
import helpers
import zero
from checkpoints import on_ranks
from zero import comm, disk

PRECISIONS = ("fp32", "bf16", "fp16")


# --- bitwise ----------------------------------------------------------------------------------


def dropped(rank, world_size, stage, precision):
    """Layers with dropout; the loss function that goes with it."""
    model, opt = checkpoints.build(rank, world_size, "groups", stage, precision=precision)
    dtype = opt.precision.param_dtype or torch.float32

    def loss(model, x, y):
        out = nn.functional.dropout(model(x.to(dtype)), 0.5)
        return opt.scale(nn.functional.mse_loss(out.float(), y))

    return model, opt, loss


def straight_and_resumed(rank, world_size, stage, precision, root):
    folder = f"{root}/{stage}-{precision}"
    torch.manual_seed(50 + rank)
    model, opt, loss = dropped(rank, world_size, stage, precision)
    losses = helpers.train_sharded(model, opt, 4, loss=loss)
    expected = losses[2:], helpers.full_weights(model, opt), checkpoints.kept(opt), settings(opt)

    torch.manual_seed(50 + rank)
    model, opt, loss = dropped(rank, world_size, stage, precision)
    helpers.train_sharded(model, opt, 2, loss=loss)
    zero.checkpoint.save(folder, model, opt, 2)

    torch.manual_seed(999)
    model, opt, loss = dropped(rank, world_size, stage, precision)
    helpers.train_sharded(model, opt, 1, loss=loss)  # leaves states that must not survive
    at = zero.checkpoint.load(folder, model, opt)
    losses = helpers.train_sharded(model, opt, range(at.step, 4), loss=loss)
    found = losses, helpers.full_weights(model, opt), checkpoints.kept(opt), settings(opt)
    return expected, found


def settings(opt):
    scale = opt.loss_scale and vars(opt.loss_scale)
    groups = [{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups]
    return opt.steps, opt.skipped, scale, groups


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_resumed_training_is_bitwise_the_same(world_size, tmp_path):
    """4 steps straight, and 2 + save + load + 2, with dropout and a seed for each rank (F19)."""
    cases = list(itertools.product(helpers.STAGES, PRECISIONS))

    def scenario(rank, world_size):
        return [straight_and_resumed(rank, world_size, *case, str(tmp_path)) for case in cases]

    for results in on_ranks(scenario, world_size):
        for case, (expected, found) in zip(cases, results, strict=True):
            assert found[0] == expected[0], case
            assert all(torch.equal(found[1][k], v) for k, v in expected[1].items()), case
            checkpoints.assert_same_states([found[2]], [expected[2]])
            assert found[3] == expected[3], case


def test_ranks_that_never_saw_the_first_steps_go_on_with_them(tmp_path):
    def first(rank, world_size):
        torch.manual_seed(50 + rank)
        model, opt, loss = dropped(rank, world_size, 3, "bf16")
        helpers.train_sharded(model, opt, 2, loss=loss)
        path = zero.checkpoint.save(tmp_path, model, opt, 2, extra={"read": [16, 2]})
        helpers.train_sharded(model, opt, (2, 3), loss=loss)
        return str(path), helpers.full_weights(model, opt)

    def second(rank, world_size):
        model, opt, loss = dropped(rank, world_size, 3, "bf16")
        at = zero.checkpoint.load(tmp_path, model, opt)
        helpers.train_sharded(model, opt, (2, 3), loss=loss)
        return at, helpers.full_weights(model, opt)

    saved, resumed = on_ranks(first, 2), on_ranks(second, 2)
    for (path, expected), (at, found) in zip(saved, resumed, strict=True):
        assert path == str(tmp_path / "step-00000002") == str(at.folder)
        assert (at.step, at.extra, at.world_size) == (2, {"read": [16, 2]}, 2)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_groups_and_scheduler_come_back(tmp_path):
    """Hyperparameters changed by hand and a schedule half-way, in two groups (E2)."""

    def run(rank, world_size):
        def build():
            model, opt = checkpoints.build(rank, world_size, "groups", 2)
            rates = [lambda step: 0.5**step, lambda step: 1 / (1 + step)]
            return model, opt, torch.optim.lr_scheduler.LambdaLR(opt, rates)

        def train(model, opt, scheduler, steps):
            for step in steps:
                helpers.train_sharded(model, opt, [step])
                scheduler.step()

        model, opt, scheduler = build()
        train(model, opt, scheduler, range(2))
        opt.param_groups[1]["weight_decay"] = 0.25
        opt.param_groups[0]["betas"] = (0.8, 0.95)
        zero.checkpoint.save(tmp_path, model, opt, 2, scheduler=scheduler)
        train(model, opt, scheduler, range(2, 4))
        expected = helpers.full_weights(model, opt), settings(opt)
        model, opt, scheduler = build()
        zero.checkpoint.load(tmp_path, model, opt, scheduler=scheduler)
        assert opt.param_groups[1]["weight_decay"] == 0.25
        assert opt.param_groups[0]["betas"] == (0.8, 0.95)
        train(model, opt, scheduler, range(2, 4))
        assert settings(opt) == expected[1]
        assert scheduler.last_epoch == 4
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            zero.checkpoint.load(tmp_path, model, opt)
        return said

    for rank, said in enumerate(on_ranks(run, 2)):
        assert [str(w.message) for w in said] == (
            [] if rank else ["the checkpoint's scheduler is not restored: pass scheduler="]
        )


def test_every_scheduler(tmp_path):
    """All of PyTorch's schedulers go on with the same rates."""
    lr = torch.optim.lr_scheduler
    makers = [
        lambda o: lr.LambdaLR(o, lambda step: 0.9**step),
        lambda o: lr.MultiplicativeLR(o, lambda step: 0.9),
        lambda o: lr.StepLR(o, 2),
        lambda o: lr.MultiStepLR(o, [2, 4]),
        lambda o: lr.ConstantLR(o, total_iters=3),
        lambda o: lr.LinearLR(o),
        lambda o: lr.ExponentialLR(o, 0.9),
        lambda o: lr.PolynomialLR(o, 9),
        lambda o: lr.CosineAnnealingLR(o, 9),
        lambda o: lr.CosineAnnealingWarmRestarts(o, 3),
        lambda o: lr.CyclicLR(o, 1e-3, 1e-2, 3, cycle_momentum=False),
        lambda o: lr.OneCycleLR(o, 1e-2, 9),
        lambda o: lr.ReduceLROnPlateau(o, patience=0),
        lambda o: lr.SequentialLR(o, [lr.LinearLR(o), lr.MultiStepLR(o, [2])], [2]),
        lambda o: lr.ChainedScheduler([lr.LinearLR(o), lr.StepLR(o, 2)]),
    ]

    def rates(opt, scheduler, steps):
        found = []
        for step in steps:
            opt.step()
            plateau = isinstance(scheduler, lr.ReduceLROnPlateau)
            scheduler.step(1.0 + step) if plateau else scheduler.step()
            found.append(opt.param_groups[0]["lr"])
        return found

    def run(rank, world_size):
        for number, make in enumerate(makers):
            model, opt = helpers.sharded(rank, world_size, 1)
            scheduler = make(opt)
            rates(opt, scheduler, range(3))
            zero.checkpoint.save(tmp_path / str(number), model, opt, 3, scheduler=scheduler)
            expected = rates(opt, scheduler, range(3, 7))
            model, opt = helpers.sharded(rank, world_size, 1)
            scheduler = make(opt)
            zero.checkpoint.load(tmp_path / str(number), model, opt, scheduler=scheduler)
            assert rates(opt, scheduler, range(3, 7)) == expected, type(scheduler)

    on_ranks(run, 1)


# --- unusual moments --------------------------------------------------------------------------


@pytest.mark.parametrize("stage", helpers.STAGES)
def test_before_the_first_step_after_a_load_and_between_micro_batches(stage, tmp_path):
    """There are no moments yet; what is loaded can be saved at once; gradients are not kept
    (E6, F17)."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, stage)
        zero.checkpoint.save(tmp_path, model, opt, 0)
        helpers.train_sharded(model, opt, 2)
        assert zero.checkpoint.load(tmp_path, model, opt).step == 0
        assert not opt.inner.state
        again = zero.checkpoint.save(tmp_path, model, opt, 0)
        assert again.name == "step-00000000.1"
        model, opt = helpers.sharded(rank, world_size, stage)
        zero.checkpoint.load(tmp_path, model, opt)
        helpers.train_sharded(model, opt, 4)

        helpers.loss_of(model, *helpers.rows(4, rank, world_size)).backward()
        with pytest.raises(zero.checkpoint.CheckpointError, match="gradients that no step has use"):
            zero.checkpoint.save(tmp_path, model, opt, 4)
        if stage == 0:
            opt.clip_grad_norm_(1.0)
            with pytest.raises(zero.checkpoint.CheckpointError, match="save after opt"):
                zero.checkpoint.save(tmp_path, model, opt, 4)
        opt.zero_grad(set_to_none=False)
        zero.checkpoint.save(tmp_path, model, opt, 4)
        return helpers.full_weights(model, opt)

    helpers.assert_equal_to_reference(on_ranks(run, 2), helpers.reference())


def test_moments_and_counters_keep_their_format(tmp_path):
    """16-bit weights, fp32 moments, and a counter that a 16-bit number could not hold (E8)."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1, precision="bf16")
        for p in model.parameters():
            p.grad = torch.randn(p.shape).to(p.dtype)
            opt._on_gradient(p)
        opt.step()
        opt.zero_grad()
        for s in opt.slices:
            opt.inner.state[s.param]["step"].fill_(3001)
        before = checkpoints.kept(opt)
        zero.checkpoint.save(tmp_path, model, opt, 3001)
        model, opt = helpers.sharded(rank, world_size, 1, precision="bf16")
        zero.checkpoint.load(tmp_path, model, opt)
        for s in opt.slices:
            state = opt.inner.state[s.param]
            assert state["step"].item() == 3001
            assert state["step"].dtype == state["exp_avg"].dtype == torch.float32
        return before, checkpoints.kept(opt)

    for before, after in on_ranks(run, 2):
        checkpoints.assert_same_states([after], [before])


def test_every_elementwise_optimizer(tmp_path):
    kinds = [*zero.groups.ELEMENTWISE, zero.adam.AdamW]

    def run(rank, world_size):
        for kind in kinds:
            options = {"momentum": 0.9} if kind is torch.optim.SGD else {"lr": 1e-2}
            options.setdefault("lr", 1e-2)
            folder = tmp_path / f"{kind.__module__}.{kind.__name__}"
            model, opt = helpers.sharded(rank, world_size, 2, optimizer=kind, **options)
            helpers.train_sharded(model, opt, 2)
            zero.checkpoint.save(folder, model, opt, 2)
            helpers.train_sharded(model, opt, (2, 3))
            expected = helpers.full_weights(model, opt)
            model, opt = helpers.sharded(rank, world_size, 2, optimizer=kind, **options)
            zero.checkpoint.load(folder, model, opt)
            helpers.train_sharded(model, opt, (2, 3))
            found = helpers.full_weights(model, opt)
            assert all(torch.equal(found[k], v) for k, v in expected.items()), kind

    on_ranks(run, 2)


def test_parameters_without_a_module(tmp_path):
    def run(rank, world_size):
        def build():
            model = helpers.m0()
            return model, zero.shard(list(model.parameters()), 1, **helpers.ADAMW)

        model, opt = build()
        helpers.train_sharded(model, opt, 2)
        zero.checkpoint.save(tmp_path, None, opt, 2)
        model, opt = build()
        zero.checkpoint.load(tmp_path, None, opt)
        helpers.train_sharded(model, opt, (2, 3))
        return helpers.weights(model)

    helpers.assert_equal_to_reference(on_ranks(run, 2), helpers.reference())
    assert list(zero.checkpoint.inspect(tmp_path)["parameters"]) == ["0", "1", "2", "3"]


# --- buffers ----------------------------------------------------------------------------------


class Normed(nn.Module):
    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(7, 13), nn.BatchNorm1d(13), nn.Linear(13, 5)
        self.register_buffer("mine", torch.full((2,), float(rank)), persistent=False)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


@pytest.mark.parametrize("stage", [1, 3])
def test_buffers_are_those_of_rank_0(stage, tmp_path):
    """Running statistics as rank 0 has them; what is not persistent is not saved (A11)."""

    def run(rank, world_size):
        model = Normed(rank)
        opt = zero.shard(model, stage, **helpers.ADAMW)
        helpers.train_sharded(model, opt, 4)
        expected = {name: b.clone() for name, b in model.named_buffers()}
        zero.checkpoint.save(tmp_path, model, opt, 4)
        model = Normed(rank + 5)
        opt = zero.shard(model, stage, **helpers.ADAMW)
        zero.checkpoint.load(tmp_path, model, opt)
        return expected, {name: b.clone() for name, b in model.named_buffers()}

    results = on_ranks(run, 2)
    expected = results[0][0]
    assert expected["norm.num_batches_tracked"] == 4
    assert not torch.equal(expected["norm.running_mean"], results[1][0]["norm.running_mean"])
    for _, found in results:
        assert torch.equal(found.pop("mine"), torch.full((2,), 5.0))
        assert found.keys() | {"mine"} == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    assert "mine" not in zero.checkpoint.inspect(tmp_path)["buffers"]


# --- what is on the disk ----------------------------------------------------------------------


def owned_bytes(opt):
    """Bytes of masters (or weights) and moments that this rank owns."""
    states = [t for s in opt.inner.state.values() for t in s.values() if torch.is_tensor(t)]
    return sum(s.param.nbytes for s in opt.slices) + sum(t.nbytes for t in states)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_files_are_plain_and_no_larger_than_what_the_rank_owns(precision, tmp_path):
    """safetensors and JSON only, readable by the library (F15); the size bound of a shard."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 3, make=lambda: wide(256))
        helpers.train_sharded(model, opt, 1)
        zero.checkpoint.save(tmp_path, model, opt, 1)
        return owned_bytes(opt)

    def wide(width):
        return nn.Sequential(nn.Linear(7, width), nn.Tanh(), nn.Linear(width, 5))

    owned = on_ranks(run, 4)
    folder = tmp_path / "step-00000001"
    shards = [f"rank-0000{rank}.safetensors" for rank in range(4)]
    assert sorted(os.listdir(folder)) == ["manifest.json", *shards]
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000001"]
    assert (tmp_path / "latest").read_text() == "step-00000001\n"
    content = json.loads((folder / "manifest.json").read_text())
    for file, bytes_owned in zip(shards, owned, strict=True):
        size = (folder / file).stat().st_size
        assert content["files"][file]["bytes"] == size
        assert size < 1.05 * bytes_owned + (64 << 10)
        with safe_open(folder / file, "pt") as opened:
            assert all(opened.get_tensor(key).numel() for key in opened.keys())  # noqa: SIM118
    elements = sum(p["slices"][-1]["offset"] for p in content["parameters"].values())
    assert elements < 7 * 256 + 256 + 5 * 256 + 5


def test_data_parallel_ranks_write_a_part_each(tmp_path):
    """At stage 0 every rank holds everything; it is written once, not four times."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 0, make=lambda: nn.Linear(7, 512))
        model.forward = lambda x: nn.functional.linear(x, model.weight, model.bias)[:, :5]
        helpers.train_sharded(model, opt, 1)
        zero.checkpoint.save(tmp_path, model, opt, 1)

    on_ranks(run, 4)
    files = zero.checkpoint.verify(tmp_path)["files"].values()
    assert max(f["bytes"] for f in files) < 12 * 8 * 512 / 4 * 1.05 + (8 << 10)


def test_padding_is_not_saved(tmp_path):
    """M0 has 174 elements, on 4 ranks in shards of 44 (A3)."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1)
        helpers.train_sharded(model, opt, 1)
        zero.checkpoint.save(tmp_path, model, opt, 1)

    on_ranks(run, 4)
    by_file = {}
    for parameter in zero.checkpoint.inspect(tmp_path)["parameters"].values():
        for s in parameter["slices"]:
            by_file[s["file"]] = by_file.get(s["file"], 0) + s["length"]
    assert list(by_file.values()) == [44, 44, 44, 42]


# --- memory -----------------------------------------------------------------------------------


def live_bytes():
    gc.collect()
    return sum(
        t.untyped_storage().nbytes()
        for t in gc.get_objects()
        if type(t) in (torch.Tensor, nn.Parameter)
    )


def peak_memory():
    """The largest resident size of this process since `reset_peak`, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


@pytest.mark.parametrize("async_save", [False, True])
def test_twenty_saves_keep_nothing(async_save, tmp_path):
    """Equal after the second save and after the twentieth (F22)."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 2)
        helpers.train_sharded(model, opt, 1)
        sizes, objects = [], []
        for step in range(1, 21):
            zero.checkpoint.save(tmp_path, model, opt, step, async_save=async_save)
            zero.checkpoint.wait()
            if step in (2, 20):
                sizes.append(live_bytes())
                objects.append(len(gc.get_objects()))
        return sizes, objects

    for sizes, objects in on_ranks(run, 2):
        assert sizes[0] == sizes[1]
        assert objects[1] - objects[0] < 50
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["latest", "step-00000018", "step-00000019", "step-00000020"]


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's /proc")
def test_saving_a_large_model_needs_little_memory(tmp_path):
    """30M parameters, 360 MB of states: less than 64 MB more while they are written."""

    def run(rank, world_size):
        model = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(30)))
        opt = zero.shard(model, 1)
        for p in model.parameters():
            p.grad = torch.full_like(p, 1e-3)
        opt.step()
        opt.zero_grad()
        small = zero.shard([nn.Parameter(torch.ones(1))], 1)
        zero.checkpoint.save(tmp_path / "small", None, small, 0)  # imports what a save needs
        reset_peak()
        before = peak_memory()
        path = zero.checkpoint.save(tmp_path, model, opt, 1)
        return peak_memory() - before, sum(f.stat().st_size for f in path.iterdir())

    ((extra, written),) = on_ranks(run, 1)
    assert written > 360e6
    assert extra < 64 << 20


# --- in the background ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [0, 2])
def test_a_background_save_holds_the_moment_it_was_called(stage, tmp_path):
    """Training goes on while a thread writes; the checkpoint is of the step before."""

    def run(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, stage)
        assert zero.checkpoint.wait() is None
        helpers.train_sharded(model, opt, 2)
        before, extra = checkpoints.kept(opt), {"read": [2]}
        schedule = torch.optim.lr_scheduler.MultiStepLR(opt, [1])
        disk.hook = lambda step: time.sleep(0.002)  # a slow disk
        assert (
            zero.checkpoint.save(
                *(tmp_path, model, opt, 2, extra), scheduler=schedule, async_save=True
            )
            is None
        )
        helpers.train_sharded(model, opt, (2, 3))
        extra["read"].append(4)
        schedule.step()
        path = zero.checkpoint.wait()
        disk.hook = None
        assert path.name == "step-00000002"
        found = zero.checkpoint.inspect(path)
        assert (found["extra"], found["scheduler"]["last_epoch"]) == ({"read": [2]}, 0)
        assert (found["steps"], found["optimizer"]["groups"][0]["lr"]) == (2, 0.01)
        zero.checkpoint.save(tmp_path, model, opt, 4, async_save=True)
        zero.checkpoint.save(tmp_path, model, opt, 5, async_save=True)
        assert zero.checkpoint.load(tmp_path, model, opt).step == 5
        assert zero.checkpoint.load(tmp_path, model, opt, step=4).step == 4
        assert zero.checkpoint.load(path, model, opt).step == 2
        return before, checkpoints.kept(opt)

    for before, after in on_ranks(run, 2):
        checkpoints.assert_same_states([after], [before])


def another_run_case(rank, world_size, root):
    """100, 200, 300; then, resumed from 100: 110, 120, 130, of which the last becomes broken."""
    model, opt = checkpoints.build(rank, world_size, "m0", 1)
    for step in (100, 200, 300):
        zero.checkpoint.save(root, model, opt, step)
    zero.checkpoint.load(root, model, opt, 100)
    folders = []
    for step in (110, 120, 130):
        zero.checkpoint.save(root, model, opt, step, keep_last=2)
        folders.append(sorted(name for name in os.listdir(root) if name.startswith("step")))
    texts = []
    for path in (f"{root}/step-00000300", f"{root}/step-00000130/"):
        try:
            zero.checkpoint.load(path, model, opt, 130)
            texts.append("")
        except zero.checkpoint.CheckpointError as error:
            texts.append(str(error))
    comm.barrier()
    if rank == 0:
        os.unlink(f"{root}/step-00000130/manifest.json")
    comm.barrier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return folders, texts, zero.checkpoint.load(root, model, opt).step


def test_a_run_resumed_from_before_others_keeps_its_own(tmp_path):
    """Later steps do not push them out, and are the last to be fallen back to."""
    later = ["step-00000200", "step-00000300"]
    for folders, texts, step in on_ranks(another_run_case, 2, tmp_path):
        assert folders == [
            ["step-00000100", "step-00000110", *later],
            ["step-00000110", "step-00000120", *later],
            ["step-00000120", "step-00000130", *later],
        ]
        assert "step-00000300 holds no checkpoint of step 130" in texts[0]
        assert texts[1] == ""
        assert step == 120
