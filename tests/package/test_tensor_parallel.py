"""Tensor parallelism: a cut model computes, learns and clips as the unsplit one does."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zero
from helpers import Together, on_ranks
from zero import comm, models
from zero.parts import Cut, join, take, whole, whole_parameters
from zero.tensor_parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabularyParallelEmbedding,
    mesh,
    own_random,
    parallelize,
)

VOCABULARY, TIME, STEPS = 11, 8, 3  # eleven tokens: no number of ranks here divides them


def gpt(tied: bool = False, dropout: float = 0.0, seed: int = 0) -> models.GPT:
    torch.manual_seed(seed)
    return models.GPT(VOCABULARY, TIME, layers=2, heads=4, width=16, dropout=dropout, tied=tied)


def tokens(step: int = 0, rank: int = 0, world_size: int = 1):
    """Eight sequences a step, divided over the data-parallel ranks."""
    x = torch.randint(VOCABULARY, (8, TIME), generator=torch.Generator().manual_seed(step))
    mine = x.chunk(world_size)[rank]
    return mine, mine.roll(-1, 1)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: whole(p.grad, p, name) for name, p in model.named_parameters()}


def assert_close(mine: dict, expected: dict, atol: float = 1e-6) -> None:
    assert mine.keys() == expected.keys()
    for name, want in expected.items():
        assert mine[name].shape == want.shape, name
        assert (mine[name] - want).abs().max() < atol, name


# --- cutting and joining -------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_parts_put_together_are_the_whole(world_size):
    """Also where the length does not divide, or is shorter than the number of ranks."""

    def scenario(rank, world_size):
        generator = torch.Generator().manual_seed(1)
        for shape, dim, blocks in [
            ((5, 3), 0, 1),
            ((3, 7), 1, 1),
            ((2, 3, 6), -1, 3),
            ((24, 2), 0, 3),
            ((2, 3), 0, 1),
        ]:
            x = torch.randn(shape, generator=generator)
            cut = Cut(None, dim, shape[dim], blocks)
            part = take(x, cut)
            start, end = cut.bounds()
            assert part.shape[dim] == blocks * (end - start)
            assert torch.equal(join(part, cut), x), (shape, dim, blocks)

    on_ranks(scenario, world_size)


def test_queries_keys_and_values_are_cut_each_for_itself():
    def scenario(rank, world_size):
        return take(torch.arange(12), Cut(None, 0, 12, blocks=3)).tolist()

    assert on_ranks(scenario, 2) == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_pair_of_layers_whose_width_does_not_divide(world_size):
    """Column- then row-parallel, seven inner features, one exchange forward and one backward."""

    def scenario(rank, world_size):
        torch.manual_seed(0)
        up, down = nn.Linear(5, 7), nn.Linear(7, 5)
        group = dist.group.WORLD
        pair = nn.Sequential(
            ColumnParallelLinear(up, group), nn.GELU(), RowParallelLinear(down, group)
        )
        x = torch.randn(2, 3, 5)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        with comm.record() as log:
            out = pair(ours)
            out.square().sum().backward()
        want = down(nn.functional.gelu(up(theirs)))
        want.square().sum().backward()
        assert (out - want).abs().max() < 1e-6
        assert (ours.grad - theirs.grad).abs().max() < 1e-5
        assert [(e.op, e.count) for e in log.entries] == [("all_reduce", 2 * 3 * 5)] * 2

    on_ranks(scenario, world_size)


def test_an_embedding_whose_rows_do_not_divide():
    def scenario(rank, world_size):
        torch.manual_seed(0)
        table = nn.Embedding(5, 3)
        cut = VocabularyParallelEmbedding(table, dist.group.WORLD)
        x = torch.tensor([[0, 1, 4], [1, 3, 1]])
        out = cut(x)
        assert torch.equal(out, table(x))
        out.sum().backward()
        table(x).sum().backward()
        assert torch.equal(whole(cut.weight.grad, cut.weight), table.weight.grad)

    on_ranks(scenario, 3)


# --- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_cut_model_equals_the_unsplit_one(world_size, tied):
    """Names, weights, loss and gradients; the ranks start from the first one's weights."""

    def scenario(rank, world_size):
        model = parallelize(gpt(tied, seed=rank), None)
        reference = gpt(tied)
        x, y = tokens()
        loss, expected = model(x, y), reference(x, y)
        assert abs(loss - expected) < 1e-6
        assert torch.allclose(model(x), reference(x), atol=1e-6)
        loss.backward()
        expected.backward()
        assert_close(whole_parameters(model), dict(reference.named_parameters()), 1e-12)
        assert_close(gradients(model), gradients(reference))
        assert (model.head.weight is model.wte.weight) == tied
        cut = sum(p.numel() for p in model.parameters() if hasattr(p, "tp_cut"))
        return cut, sum(p.numel() for p in model.parameters()) - cut

    results = on_ranks(scenario, world_size)
    reference = gpt(tied)
    names = ("wte", "head", "qkv", "up", "down.weight", "proj.weight")
    cut = sum(p.numel() for n, p in reference.named_parameters() if any(k in n for k in names))
    assert sum(r[0] for r in results) == cut, "cut parameters must be held once"
    total = sum(p.numel() for p in reference.parameters())
    assert {r[1] for r in results} == {total - cut}


def test_replicated_parts_are_the_same_bit_for_bit():
    def scenario(rank, world_size):
        model = parallelize(gpt(), None)
        kept = []
        for block in model.blocks:
            block.register_forward_hook(lambda _, args, out: kept.extend([args[0], out]))
        model(*tokens()).backward()
        grads = [p.grad for p in model.parameters() if not hasattr(p, "tp_cut")]
        return [t.detach() for t in kept + grads]

    first, *others = on_ranks(scenario, 4)
    assert len(first) > 10
    for other in others:
        assert all(map(torch.equal, first, other))


def test_dropout_is_common_outside_the_heads_and_different_inside():
    def scenario(rank, world_size):
        torch.manual_seed(rank)  # the ranks come with different seeds
        model = parallelize(gpt(dropout=0.5, seed=rank), None)
        seen = {}
        model.blocks[0].register_forward_hook(lambda _, args, out: seen.update(out=out))
        model(*tokens())
        before = torch.get_rng_state()
        with own_random(dist.group.WORLD, torch.device("cpu")):
            own = torch.rand(4)
        changed = not torch.equal(before, torch.get_rng_state())
        return seen["out"].detach(), own, torch.rand(4), changed

    (out, own, common, changed), (other_out, other_own, other_common, _) = on_ranks(scenario, 2)
    assert torch.equal(out, other_out)
    assert torch.equal(common, other_common)
    assert not torch.equal(own, other_own)
    assert changed, "a second call must not draw the same numbers"


# --- with ZeRO -----------------------------------------------------------------------------------


def train(model, opt, data, steps=STEPS, max_norm=None):
    losses, norms = [], []
    for step in range(steps):
        loss = model(*data(step))
        loss.backward()
        if max_norm is not None:
            norm = opt.clip_grad_norm_(max_norm) if hasattr(opt, "slices") else None
            if norm is None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            norms.append(norm.item())
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses, norms


OPTIMIZERS = {
    # eps: the gradient of a key's bias is zero but for rounding. Adam would make a step of that.
    torch.optim.AdamW: {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-5},
    torch.optim.SGD: {"lr": 1e-1, "momentum": 0.9},
}


def on_a_grid(rank, world_size, stage, optimizer):
    """Two columns of two: what one rank has seen, and the whole weights in the end."""
    grid = mesh(dp=2, tp=2)
    dp = grid.get_local_rank("dp")
    model = parallelize(gpt(tied=True, seed=rank), grid.get_group("tp"))
    opt = zero.shard(model, stage, optimizer, group=grid.get_group("dp"), **OPTIMIZERS[optimizer])
    losses, norms = train(model, opt, lambda step: tokens(step, dp, 2), max_norm=0.05)
    with opt.full_params():
        return losses, norms, whole_parameters(model)


grids = Together(on_a_grid, [(s, o) for s in zero.front.STAGES for o in OPTIMIZERS])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("stage", zero.front.STAGES)
def test_two_by_two_trains_like_one_process(stage, optimizer):
    """ZeRO over the columns, tensor parallelism over the rows, tight clipping."""
    reference = gpt(tied=True)
    plain = optimizer(reference.parameters(), **OPTIMIZERS[optimizer])
    losses, norms = train(reference, plain, tokens, max_norm=0.05)
    assert min(norms) > 0.05, "clipping must bite"
    results = grids(4, stage, optimizer)
    for _, mine, weights in results:
        assert mine == results[0][1], "the norm must be the same on every rank"
        assert mine == pytest.approx(norms, abs=1e-6)
        assert_close(weights, dict(reference.named_parameters()), 1e-6)
    assert results[0][0] == results[1][0] and results[2][0] == results[3][0]
    mean = [(a + b) / 2 for a, b in zip(results[0][0], results[2][0])]
    assert mean == pytest.approx(losses, abs=1e-6)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_each_part_is_saved_and_loaded(stage, tmp_path):
    """All ranks of the grid save one checkpoint, of all parts, and load their own part of it."""

    def scenario(rank, world_size, stage, folder):
        grid = mesh(dp=2, tp=2)
        dp = grid.get_local_rank("dp")

        def start(seed):
            model = parallelize(gpt(seed=seed), grid.get_group("tp"))
            return model, zero.shard(model, stage, group=grid.get_group("dp"), lr=1e-2)

        model, opt = start(0)
        train(model, opt, lambda step: tokens(step, dp, 2), steps=2)
        zero.checkpoint.save(folder, model, opt, step=2)
        train(model, opt, lambda step: tokens(2 + step, dp, 2), steps=2)
        again, opt_again = start(1)
        assert zero.checkpoint.load(folder, again, opt_again).step == 2
        train(again, opt_again, lambda step: tokens(2 + step, dp, 2), steps=2)
        with opt.full_params(), opt_again.full_params():
            return whole_parameters(model), whole_parameters(again)

    for expected, mine in on_ranks(scenario, 4, stage, str(tmp_path)):
        assert all(map(torch.equal, expected.values(), mine.values()))


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_a_norm_counts_replicated_parameters_once(norm_type):
    """Of every order; also without any data parallelism (a column of one)."""

    def scenario(rank, world_size, norm_type):
        grid = mesh(dp=1, tp=2)
        model = parallelize(gpt(), grid.get_group("tp"))
        opt = zero.shard(model, 1, torch.optim.SGD, group=grid.get_group("dp"), lr=0.1)
        model(*tokens()).backward()
        return opt.grad_norm(norm_type)

    reference = gpt()
    reference(*tokens()).backward()
    grads = [p.grad for p in reference.parameters()]
    expected = nn.utils.get_total_norm(grads, norm_type).item()
    assert on_ranks(scenario, 2, norm_type) == [pytest.approx(expected, rel=1e-5)] * 2


def test_an_overflow_in_one_part_stops_the_step_on_every_rank():
    """Only one of four ranks has the bad value, in a parameter that is cut."""

    @pytest.mark.filterwarnings("ignore")
    def scenario(rank, world_size):
        grid = mesh(dp=2, tp=2)
        model = parallelize(gpt(), grid.get_group("tp"))
        opt = zero.shard(model, 1, torch.optim.SGD, group=grid.get_group("dp"), lr=0.1)
        before = whole_parameters(model)
        model(*tokens()).backward()
        if rank == 3:
            model.blocks[1].feed_forward.up.weight.grad[0, 0] = float("inf")
        with pytest.raises(RuntimeError, match=r"blocks\.1\.feed_forward\.up\.weight"):
            opt.clip_grad_norm_(1.0, error_if_nonfinite=True)
        opt.step()
        same = all(map(torch.equal, before.values(), whole_parameters(model).values()))
        return opt.stepped, same

    assert on_ranks(scenario, 4) == [(False, True)] * 4


# --- what is refused -----------------------------------------------------------------------------


def test_clear_errors():
    def scenario(rank, world_size):
        with pytest.raises(ValueError, match=r"4 heads .* among 3 tensor-parallel ranks"):
            parallelize(gpt(), None)
        with pytest.raises(ValueError, match="3 ranks cannot share a vocabulary of 2"):
            parallelize(models.GPT(2, TIME, 1, 3, 12), None)
        with pytest.raises(TypeError, match="not Sequential"):
            parallelize(nn.Sequential(nn.Linear(2, 2)), None)
        with pytest.raises(ValueError, match=r"mesh\(dp=2, tp=2\) needs 4 ranks, but there are 3"):
            mesh(dp=2, tp=2)
        with torch.device("meta"), pytest.raises(ValueError, match="meta device"):
            parallelize(models.GPT(VOCABULARY, TIME, 1, 3, 12), None)
        model = parallelize(models.GPT(VOCABULARY, TIME, 1, 3, 12), None)
        with pytest.raises(ValueError, match="cut already"):
            parallelize(model, None)
        with pytest.raises(ValueError, match=r"ranks \[0, 1, 2\] hold different parts"):
            zero.shard(model, 1, lr=0.1)

    on_ranks(scenario, 3)
