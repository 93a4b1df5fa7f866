"""Saved by N ranks, loaded on M: by name, bit for bit, whatever the shards were."""

import functools
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import checkpoints
import helpers
import zero
from checkpoints import MODELS, on_ranks
from zero.flat import FlatLayout
from zero.reshard import copies

SIZES = (1, 2, 3, 4, 5)
STEPS = (2, 3)  # after the resume


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
    st.randoms(use_true_random=False),
)
def test_copies_bring_every_element_once(lengths, a, b, random):
    """Elements are numbered; whatever range is wanted, it arrives whole and in order."""
    numel = sum(lengths)
    offset, end = sorted((min(a, numel), min(b, numel)))
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    saved = list(zip(starts, lengths))
    random.shuffle(saved)
    found = [None] * (end - offset)
    for c in copies(offset, end - offset, saved):
        assert c.length > 0
        begin, length = saved[c.source]
        assert c.start + c.length <= length
        for i in range(c.length):
            assert found[c.target + i] is None
            found[c.target + i] = begin + c.start + i
    assert found == list(range(offset, end))


@pytest.mark.parametrize("numel", [173, 174, 175, 176])
@pytest.mark.parametrize("saved_by", SIZES)
def test_layouts_of_any_two_world_sizes_meet(numel, saved_by):
    """The slices of N ranks hold all that the slices of M ranks want, and no padding (F10)."""
    saved = FlatLayout([("p", (numel,))], saved_by)
    slices = [s for rank in range(saved_by) for s in saved.slices(rank)]
    assert sum(s.end - s.start for s in slices) == numel
    for world_size in SIZES:
        layout = FlatLayout([("p", (numel,))], world_size)
        for wanted in [s for rank in range(world_size) for s in layout.slices(rank)]:
            plan = copies(
                wanted.start,
                wanted.end - wanted.start,
                [(s.start, s.end - s.start) for s in slices],
            )
            assert sum(c.length for c in plan) == wanted.end - wanted.start


# --- with real ranks --------------------------------------------------------------------------


def stage_of(model, world_size):
    """Every stage saves and loads every model at some world size."""
    return (list(MODELS).index(model) + world_size) % 4


def train_and_save(rank, world_size, root):
    """Two steps of every model; what was saved, by model."""
    saved = {}
    for name in MODELS:
        model, opt = checkpoints.build(rank, world_size, name, stage_of(name, world_size))
        helpers.train_sharded(model, opt, 2, checkpoints.rows)
        zero.checkpoint.save(f"{root}/{name}-{world_size}", model, opt, 2)
        saved[name] = checkpoints.kept(opt)
    return saved


def load_and_train(rank, world_size, root, sizes):
    """By (model, saved world size): what was loaded, losses and weights after two more steps."""
    results = {}
    for saved_by in sizes:
        for name in MODELS:
            stage = stage_of(name, world_size + saved_by)
            model, opt = checkpoints.build(rank, world_size, name, stage)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                at = zero.checkpoint.load(f"{root}/{name}-{saved_by}", model, opt)
            assert len(said) == (rank == 0 and saved_by != world_size), [w.message for w in said]
            assert at.step == opt.steps == 2
            states = checkpoints.kept(opt)
            losses = helpers.train_sharded(model, opt, STEPS, checkpoints.rows)
            results[name, saved_by] = states, losses, helpers.full_weights(model, opt)
    return results


@functools.cache
def uninterrupted(name):
    """One ordinary process: the losses of steps 2 and 3, and the weights after them."""
    make, groups = MODELS[name]
    model = make()
    params = groups(model) if groups else [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, **helpers.ADAMW)
    losses = helpers.train(model, opt, lambda step: checkpoints.rows(step, 0, 1), 4)
    return losses[2:], helpers.weights(model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    return root, {n: on_ranks(train_and_save, n, str(root)) for n in SIZES}


@pytest.mark.timeout(200)
@pytest.mark.parametrize("world_size", SIZES)
def test_resume_on_another_world_size(world_size, saved):
    """F8 and F9, and A1, A13: all pairs of 1 to 5 ranks, with stages 0 to 3 on either side. States
    are bitwise the same by name; losses and weights continue those of one ordinary process."""
    root, states = saved
    by_rank = on_ranks(load_and_train, world_size, str(root), SIZES)
    for name, saved_by in by_rank[0]:
        results = [result[name, saved_by] for result in by_rank]
        expected = [mine[name] for mine in states[saved_by]]
        checkpoints.assert_same_states([r[0] for r in results], expected)
        losses, weights = uninterrupted(name)
        for i, loss in enumerate(losses):
            mean = sum(r[1][i] for r in results) / world_size
            assert mean == pytest.approx(loss, abs=1e-6), (name, saved_by)
        helpers.assert_equal_to_reference([r[2] for r in results], weights)


def test_precision_may_change(tmp_path):
    """fp32 masters from an fp32 run, and the other way round; a loss scale where there was none."""

    def run(rank, world_size):
        found = []
        for saved, loaded in (
            ("fp32", "bf16"),
            ("bf16", "fp32"),
            ("fp16", "bf16"),
            ("bf16", "fp16"),
        ):
            model, opt = checkpoints.build(rank, world_size, "groups", 1, precision=saved)
            dtype = opt.precision.param_dtype or torch.float32
            x, y = helpers.rows(0, rank, world_size)
            opt.scale(nn.functional.mse_loss(model(x.to(dtype)).float(), y)).backward()
            opt.step()
            folder = tmp_path / f"{saved}-{loaded}"
            zero.checkpoint.save(folder, model, opt, 1)
            before = checkpoints.kept(opt)
            model, opt = checkpoints.build(rank, world_size, "groups", 3, precision=loaded)
            zero.checkpoint.load(folder, model, opt)
            with opt.full_params():
                weights = helpers.weights(model)
            found.append((before, checkpoints.kept(opt), weights, opt.precision.param_dtype))
        return found

    for results in zip(*on_ranks(run, 2)):
        after = [r[1] for r in results]
        checkpoints.assert_same_states(after, [r[0] for r in results])
        whole = checkpoints.joined(after)
        for _, _, weights, dtype in results:
            for name, weight in weights.items():
                master = whole[name][0]["value"].view(weight.shape)
                assert torch.equal(weight, master.to(dtype or torch.float32)), name


def test_new_ranks_get_fresh_random_numbers(tmp_path):
    """On another number of ranks each has a seed of its own, the same whenever it resumes (F19)."""

    def save(rank, world_size):
        torch.manual_seed(1)
        model, opt = helpers.sharded(rank, world_size, 1)
        zero.checkpoint.save(tmp_path, model, opt, 7)

    def load(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            zero.checkpoint.load(tmp_path, model, opt)
        return torch.rand(4).tolist(), [str(w.message) for w in said]

    on_ranks(save, 2)
    first, again = on_ranks(load, 3), on_ranks(load, 3)
    assert [numbers for numbers, _ in first] == [numbers for numbers, _ in again]
    assert len({tuple(numbers) for numbers, _ in first}) == 3
    assert "saved by 2 ranks, loaded on 3" in first[0][1][0]
    torch.manual_seed(zero.states.fresh_seed(7, 3, 2))
    assert torch.rand(4).tolist() == first[2][0]


def test_a_rank_reads_only_what_it_needs(tmp_path, monkeypatch):
    """Bytes of tensors read by one of 4 ranks: its slices, buffers and random state."""

    def save(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1, make=lambda: nn.Linear(7, 5000))
        for p in model.parameters():
            p.grad = torch.ones_like(p)
            opt._on_gradient(p)
        opt.step()
        zero.checkpoint.save(tmp_path, model, opt, 1)

    def load(rank, world_size):
        model, opt = helpers.sharded(rank, world_size, 1, make=lambda: nn.Linear(7, 5000))
        read, original = [], zero.shards.read_into

        def counting(file, stored, first, out):
            read.append(out.nbytes)
            return original(file, stored, first, out)

        zero.shards.read_into = counting
        zero.checkpoint.load(tmp_path, model, opt)
        return sum(read), sum(s.param.nbytes for s in opt.slices)

    on_ranks(save, 3)
    for read, weights in on_ranks(load, 4):
        assert read == 3 * weights
