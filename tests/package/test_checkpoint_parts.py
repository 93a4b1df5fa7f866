"""Checkpoints of tensor-parallel models: one commit for all parts, one file from them."""

import os

import pytest
import torch
from safetensors.torch import load_file

import checkpoints
import zero
from checkpoints import on_ranks
from zero import comm, models
from zero.checkpoint import CheckpointError
from zero.parts import whole_parameters
from zero.tensor_parallel import mesh, parallelize

VOCABULARY, TIME = 11, 8  # eleven tokens: two parts differ in length


def gpt(seed=0, dropout=0.0, tied=True):
    torch.manual_seed(seed)
    return models.GPT(VOCABULARY, TIME, layers=2, heads=4, width=16, dropout=dropout, tied=tied)


def start(world_size, stage, tp=2, seed=0, optimizer=torch.optim.AdamW, **options):
    """A cut model on a grid of world_size/tp rows; its optimizer, and this rank's row."""
    grid = mesh(dp=world_size // tp, tp=tp)
    model = parallelize(gpt(seed, **options), grid.get_group("tp"))
    opt = zero.shard(model, stage, optimizer, group=grid.get_group("dp"), lr=1e-2)
    return model, opt, grid.get_local_rank("dp")


def train(model, opt, row, steps):
    """Eight sequences a step, over the rows."""
    for step in steps:
        x = torch.randint(VOCABULARY, (8, TIME), generator=torch.Generator().manual_seed(step))
        x = x.chunk(opt.world_size)[row]
        model(x, x.roll(-1, 1)).backward()
        opt.step()
        opt.zero_grad()


def whole(model, opt):
    with opt.full_params():
        return whole_parameters(model)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_grid_resumes_bitwise(stage, tmp_path):
    """2 x 2 ranks, dropout on, which rows share and columns do not; in the background too."""

    def run(rank, world_size):
        model, opt, row = start(world_size, stage, dropout=0.3)
        train(model, opt, row, (0, 1))
        path = zero.checkpoint.save(tmp_path, model, opt, 2)
        train(model, opt, row, (2, 3))
        expected = whole(model, opt)
        zero.checkpoint.save(tmp_path, model, opt, 4, async_save=True)
        model, opt, row = start(world_size, stage, seed=9, dropout=0.3)
        assert zero.checkpoint.load(tmp_path, model, opt).step == 4
        found = whole(model, opt)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
        assert zero.checkpoint.load(path, model, opt).step == 2
        train(model, opt, row, (2, 3))
        found = whole(model, opt)
        return all(torch.equal(found[name], tensor) for name, tensor in expected.items())

    assert on_ranks(run, 4) == [True] * 4
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-00000002", "step-00000004"]


def test_other_rows_and_other_columns(tmp_path):
    """Any number of rows; the number of columns must stay. Rows keep common random numbers.

    With SGD: the gradient of a key's bias is nothing but rounding, which Adam would blow up.
    """
    sgd = torch.optim.SGD

    def save(rank, world_size):
        model, opt, row = start(world_size, 2, optimizer=sgd)
        train(model, opt, row, (0, 1))
        zero.checkpoint.save(tmp_path, model, opt, 2)
        train(model, opt, row, (2, 3))
        return whole(model, opt)

    def load(rank, world_size):
        model, opt, row = start(world_size, 3, seed=9, optimizer=sgd)
        zero.checkpoint.load(tmp_path, model, opt)
        seeds = comm.all_gather_small(torch.rand(1), group=opt.tp_group)
        assert seeds[0] == seeds[1]
        train(model, opt, row, (2, 3))
        return whole(model, opt)

    def refused(rank, world_size):
        model, opt, _ = start(world_size, 1, tp=world_size)
        with pytest.raises(
            CheckpointError, match=f"tensor-parallel ranks is 2 in .* {world_size} "
        ):
            zero.checkpoint.load(tmp_path, model, opt)

    expected = on_ranks(save, 4)[0]
    for found in on_ranks(load, 2):
        for name, tensor in expected.items():
            assert (found[name] - tensor).abs().max() < 1e-6, name
    on_ranks(refused, 4)
    on_ranks(refused, 1)


@pytest.mark.parametrize("tied", [False, True])
def test_export_puts_the_parts_together(tied, tmp_path):
    """Rows of the embedding, columns and rows of matrices, blocks of queries, keys and values."""

    def run(rank, world_size):
        model, opt, row = start(world_size, 2, tied=tied)
        train(model, opt, row, (0, 1))
        zero.checkpoint.save(tmp_path, model, opt, 2)
        return whole(model, opt)

    expected = on_ranks(run, 4)[0]
    found = load_file(zero.checkpoint.export(tmp_path, tmp_path / "file"))
    gpt(tied=tied).load_state_dict(found, strict=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_sealed_lies_about_parts(tmp_path):
    """Wrong parts and cuts, in a manifest with a right checksum."""

    def run(rank, world_size):
        model, opt, _ = start(world_size, 1)
        zero.checkpoint.save(tmp_path, model, opt, 2)

    on_ranks(run, 2)
    folder = tmp_path / "step-00000002"
    sound = (folder / "manifest.json").read_bytes()
    for key, wrong in [
        *(
            ("part", value)
            for value in ([0, 3], [0], [0, 1], "ab", [True, 2], None, [5, 2], [-1, 2])
        ),
        *(("cut", value) for value in ([2, 11, 1], [0, 11], [-1, 1, 1], [0, -1, 1], [0, 1, 0], {})),
        ("cut", [0, 12, 1]),
    ]:
        checkpoints.rewrite(folder, lambda m: m["parameters"]["wte.weight#0"].update({key: wrong}))  # noqa: B023
        with pytest.raises(CheckpointError):
            zero.checkpoint.export(tmp_path, tmp_path / "file")
        (folder / "manifest.json").write_bytes(sound)
    zero.checkpoint.export(tmp_path, tmp_path / "file")
