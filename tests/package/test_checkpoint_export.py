"""One plain file from a checkpoint: all that a plain model needs, and nothing else."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import checkpoints
import helpers
import zero
from checkpoints import MODELS, on_ranks
from zero.checkpoint import CheckpointError

CODE = Path(__file__).parents[2] / "code"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def save(rank, world_size, root, precision, stage):
    """Two steps of every model; the gathered weights and buffers, by model."""
    found = {}
    for name in MODELS:
        model, opt = checkpoints.build(rank, world_size, name, stage, precision=precision)
        dtype = opt.precision.param_dtype or torch.float32

        def loss(model, x, y, dtype=dtype):
            return nn.functional.mse_loss(model(x.to(dtype)).float(), y)

        helpers.train_sharded(model, opt, 2, checkpoints.rows, loss=loss)
        zero.checkpoint.save(f"{root}/{name}", model, opt, 2)
        with opt.full_params():
            found[name] = copy.deepcopy(model.state_dict())
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_export_is_what_the_ranks_had(stage, precision, tmp_path):
    """All names, tied ones twice, frozen and empty ones, strictly loaded, bit for bit the gathered
    weights (F11, F12, A1, A7)."""
    gathered = on_ranks(save, 3, str(tmp_path), precision, stage)[0]
    for name, (make, _) in MODELS.items():
        file = zero.checkpoint.export(tmp_path / name, tmp_path / f"{name}.safetensors", precision)
        found = load_file(file)
        model = make()
        assert found.keys() == model.state_dict().keys()
        model.load_state_dict(found, strict=True)
        for key, tensor in gathered[name].items():
            assert found[key].shape == tensor.shape, (name, key)
            # In 16 bits the model's buffers stay what they were: only parameters are converted.
            assert torch.equal(found[key], tensor), (name, key)
    assert sum(t.numel() for t in load_file(tmp_path / "m0.safetensors").values()) == 174


@pytest.mark.parametrize("wanted", list(DTYPES))
def test_formats(wanted, tmp_path):
    """fp32 is exact; 16 bits are the fp32 values rounded; integers and buffers stay."""
    on_ranks(save, 2, str(tmp_path), "fp32", 2)
    exact = load_file(zero.checkpoint.export(tmp_path / "mixed", tmp_path / "exact"))
    found = load_file(zero.checkpoint.export(tmp_path / "mixed", tmp_path / "file", wanted))
    parameters = dict(checkpoints.Mixed().named_parameters(remove_duplicate=False))
    for key, tensor in exact.items():
        expected = tensor.to(DTYPES[wanted]) if key in parameters else tensor
        assert found[key].dtype == expected.dtype
        assert torch.equal(found[key], expected), key
    assert found["steps"].dtype == torch.int64
    assert torch.equal(found["first.weight"], found["second.weight"])


def test_export_in_an_ordinary_process(tmp_path):
    """No process group, and little memory: 40 MB of weights are never there as a whole."""

    def run(rank, world_size):
        model = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(10)))
        zero.checkpoint.save(tmp_path / "run", model, zero.shard(model, 3), 0)

    on_ranks(run, 2)
    program = f"""
import resource, sys
sys.path.insert(0, {str(CODE)!r})
import torch
from zero import checkpoint
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
checkpoint.export({str(tmp_path / "run")!r}, {str(tmp_path / "file")!r}, "bf16")
print(torch.distributed.is_initialized(), peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    initialized, kilobytes = done.stdout.split()
    assert initialized == "False"
    if sys.platform == "linux":
        assert int(kilobytes) < 24 << 10
    assert (tmp_path / "file").stat().st_size < 20.1e6


def test_weights_loaded_into_a_sharded_model_stay(tmp_path):
    """An exported file into another run in bf16, whose masters must follow (F16)."""

    def first(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1)
        helpers.train_sharded(model, opt, 2)
        zero.checkpoint.save(tmp_path / "run", model, opt, 2)

    on_ranks(first, 2)
    file = zero.checkpoint.export(tmp_path / "run", tmp_path / "file")

    def second(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1, precision="bf16", lr=0.0)
        model.load_state_dict(load_file(file))
        x, y = helpers.rows(0, rank, world_size)
        nn.functional.mse_loss(model(x.bfloat16()).float(), y).backward()
        opt.step()
        return helpers.full_weights(model, opt)

    for weights in on_ranks(second, 2):
        for name, tensor in load_file(file).items():
            assert torch.equal(weights[name], tensor.bfloat16())


def test_a_meta_model_of_frozen_and_trained_units(tmp_path):
    """Frozen layers between trained ones, at stage 3, with a unit of frozen ones alone (D17)."""

    def run(rank, world_size):
        model = checkpoints.Layers()
        model.layers[1].requires_grad_(False)
        opt = zero.shard(model, 3, **helpers.ADAMW)
        helpers.train_sharded(model, opt, 2)
        zero.checkpoint.save(tmp_path / "run", model, opt, 2)
        return helpers.full_weights(model, opt)

    weights = on_ranks(run, 3)[0]
    found = load_file(zero.checkpoint.export(tmp_path / "run", tmp_path / "file"))
    checkpoints.Layers().load_state_dict(found, strict=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())


def test_several_dtypes_in_one_model(tmp_path):
    """float64 and float32 parameters in one group (A6)."""

    def build(rank, world_size):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(7, 13), nn.Linear(13, 5).double())
        model.forward = lambda x: model[1](model[0](x).double()).float()
        return model, zero.shard(model, 2, **helpers.ADAMW)

    def run(rank, world_size):
        model, opt = build(rank, world_size)
        helpers.train_sharded(model, opt, 2)
        zero.checkpoint.save(tmp_path / "run", model, opt, 2)
        before = checkpoints.kept(opt)
        model, opt = build(rank, world_size)
        zero.checkpoint.load(tmp_path / "run", model, opt)
        checkpoints.assert_same_states([checkpoints.kept(opt)], [before])
        return helpers.full_weights(model, opt)

    weights = on_ranks(run, 2)[0]
    found = load_file(zero.checkpoint.export(tmp_path / "run", tmp_path / "file"))
    assert torch.equal(found["1.weight"], weights["1.weight"].float())
    assert torch.equal(found["0.weight"], weights["0.weight"])


def test_what_export_refuses(tmp_path):
    on_ranks(save, 2, str(tmp_path), "fp32", 1)
    with pytest.raises(CheckpointError, match="precision='int8' is unknown; choose one of fp32"):
        zero.checkpoint.export(tmp_path / "m0", tmp_path / "file", "int8")
    with pytest.raises(CheckpointError, match="nowhere holds no checkpoint"):
        zero.checkpoint.export(tmp_path / "nowhere", tmp_path / "file")
    (tmp_path / "file").write_text("mine")
    shard = tmp_path / "m0/step-00000002/rank-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"rank-00001.safetensors: sha256 is "):
        zero.checkpoint.export(tmp_path / "m0", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


class Stateful(nn.Linear):
    def get_extra_state(self):
        return object()


def test_state_that_is_no_tensor_is_refused(tmp_path):
    def run(rank, world_size):
        model = nn.Sequential(Stateful(7, 5))
        opt = zero.shard(model, 1, **helpers.ADAMW)
        with pytest.raises(CheckpointError, match=r"0 \(Stateful\) has an extra state of its own"):
            zero.checkpoint.save(tmp_path, model, opt, 0)

    on_ranks(run, 2)
