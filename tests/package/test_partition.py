"""Activation partitioning: each tensor-parallel rank keeps its part of what all of them have."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import zero
from helpers import Together, loss_of, on_ranks, reference, rows, weights
from zero import comm, models
from zero.activations import checkpoint, checkpoint_blocks
from zero.meter import Meter
from zero.partition import gather_parts, keep_part
from zero.parts import whole_parameters
from zero.reserve import Reserve
from zero.stores import FileStore
from zero.tensor_parallel import mesh, parallelize

LAYERS, WIDTH, TIME, BATCH, VOCABULARY = 2, 24, 5, 4, 11
CHECKPOINT = BATCH * TIME * WIDTH * 4  # bytes of one block's input


def gpt(layers=LAYERS, dropout=0.1, seed=0):
    torch.manual_seed(seed)
    return models.GPT(VOCABULARY, TIME, layers, heads=12, width=WIDTH, dropout=dropout)


def tokens(step=0, rank=0, world_size=1):
    x = torch.randint(VOCABULARY, (BATCH, TIME), generator=torch.Generator().manual_seed(step))
    mine = x.chunk(world_size)[rank]
    return mine, mine.roll(-1, 1)


# --- a part, and the whole again -----------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_parts_make_the_whole(world_size):
    """Sizes that do not divide, fewer elements than ranks, none at all, every format."""

    def scenario(rank, world_size):
        group = dist.group.WORLD
        for shape in [(7, 5), (3,), (1,), (), (0, 4), (2, 3, 4)]:
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
                part = keep_part(x, group)
                assert part.numel() == -(-x.numel() // world_size)
                assert part.untyped_storage().nbytes() == part.nbytes, "a view keeps the whole"
                back = gather_parts(part, x.shape, group)
                assert torch.equal(back, x) and back.dtype == dtype and back.shape == x.shape

    on_ranks(scenario, world_size)


# --- the same gradients --------------------------------------------------------------------------


def one_block(rank, world_size, place):
    """A block with 35 input elements and dropout, the same on all ranks (case G11)."""
    torch.manual_seed(1)
    layer = nn.Linear(5, 5)
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(2)).T.contiguous().T
    x.requires_grad_()
    options = options_for(place)

    def block(x, nothing, times, *, flag):
        assert nothing is None and flag and times == 3
        return {"out": F.dropout(layer(x), 0.5), "nothing": None}

    if options is None:
        out = block(x, None, 3, flag=True)
    else:
        out = checkpoint(block, x, None, 3, flag=True, **options)
    out["out"].square().sum().backward()
    return x.grad, layer.weight.grad, layer.bias.grad


def whole_model(rank, world_size, place):
    """All gradients of a GPT with dropout, cut over the ranks, after two backward passes."""
    model = parallelize(gpt(), dist.group.WORLD)
    options = options_for(place)
    if options is not None:
        checkpoint_blocks(model, **options)
    for step in range(2):
        model(*tokens(step)).backward()
    return [p.grad for p in model.parameters()]


def options_for(place):
    group = {"partition": dist.group.WORLD}
    return {
        "nowhere": None,
        "whole": {"partition": None},
        "parts": group,
        "parts in a file": {**group, "offload": FileStore()},
        "parts on the host": {**group, "offload": "cpu"},
        "parts in a reserve": {**group, "reserve": Reserve(1 << 14)},
    }[place]


PLACES = ["nowhere", "whole", "parts", "parts in a file", "parts on the host", "parts in a reserve"]
blocks = Together(one_block, [(p,) for p in PLACES])
gpts = Together(whole_model, [(p,) for p in PLACES])


@pytest.mark.parametrize("scenario", [blocks, gpts], ids=["block", "gpt"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_gradients_are_bitwise_those_without_checkpoints(world_size, scenario):
    expected = scenario(world_size, "nowhere")
    for place in PLACES[1:]:
        for grads, want in zip(scenario(world_size, place), expected):
            assert all(map(torch.equal, grads, want)), place


# --- bytes ---------------------------------------------------------------------------------------


def bytes_of_blocks(rank, world_size, place):
    """What two more blocks keep after forward and send, and what is left after backward.

    (`test_residual` holds the sums against the formulas.)
    """
    options, kept, sent = options_for(place), [], []
    for layers in (1, 3):
        model = checkpoint_blocks(
            parallelize(gpt(layers, dropout=0.0), dist.group.WORLD), **options
        )
        with Meter(model) as meter, comm.record() as log:
            if "reserve" in options:
                meter.watch(options["reserve"].block)
            loss = model(*tokens())
            kept.append(meter.mark("after forward")["activations"])
            loss.backward()
            after = meter.mark("after backward")["activations"]
        sent.append(sum(e.bytes for e in log.entries if e.name.startswith("a checkpoint")))
        in_use = options["reserve"].arena.in_use if "reserve" in options else 0
    return kept[1] - kept[0], sent[1] - sent[0], after, in_use


sizes = Together(bytes_of_blocks, [(p,) for p in PLACES[1:]])


@pytest.mark.parametrize("place", PLACES[1:])
def test_each_rank_keeps_its_part_and_sends_it_once(place):
    in_parts, elsewhere = place != "whole", place in ("parts in a file", "parts in a reserve")
    part = 2 * CHECKPOINT // (2 if in_parts else 1)
    for found, parts in zip(sizes(2, place), sizes(2, "parts")):
        kept, sent, after, in_use = found
        assert kept == (0 if elsewhere else part)  # the reserve was there before
        assert sent == (part if in_parts else 0)
        block = 1 << 14 if place == "parts in a reserve" else 0
        assert after - block == parts[2], "the same is left, wherever checkpoints were"
        assert in_use == 0


# --- not over data-parallel ranks ----------------------------------------------------------------


def test_partition_over_ranks_with_different_batches_is_refused():
    def scenario(rank, world_size):
        x = torch.full((7, 5), float(rank), requires_grad=True)
        loss = checkpoint(torch.tanh, x, partition=dist.group.WORLD).sum()
        with pytest.raises(comm.MismatchError, match="equal on all ranks"):
            loss.backward()
        return True

    assert on_ranks(scenario, 2) == [True, True]


# --- with ZeRO -----------------------------------------------------------------------------------

# eps: the gradient of a key's bias is zero but for rounding. Adam would make a step of that.
ADAMW = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-5}


def on_a_grid(rank, world_size, stage, place):
    """Three steps on a 2 x 2 grid: whole weights, what ZeRO-3 gathered, and what it left."""
    grid = mesh(dp=2, tp=2)
    dp, tp_group = grid.get_local_rank("dp"), grid.get_group("tp")
    model = parallelize(gpt(dropout=0.0, seed=rank), tp_group)
    if place == "parts":
        checkpoint_blocks(model, partition=tp_group)
    opt = zero.shard(model, stage, group=grid.get_group("dp"), **ADAMW)
    for step in range(3):
        with comm.record() as log:
            model(*tokens(step, dp, 2)).backward()
        gathers = [e.name for e in log.entries if "parameters of blocks." in e.name]
        left = [u.name for u in getattr(opt, "units", []) if u.state.value != "sharded"]
        opt.clip_grad_norm_(0.1)
        opt.step()
        opt.zero_grad()
    with opt.full_params():
        return whole_parameters(model), sorted(gathers), left


grids = Together(on_a_grid, [(s, p) for s in zero.front.STAGES for p in ("nowhere", "parts")])


@pytest.mark.parametrize("stage", zero.front.STAGES)
def test_on_a_grid_with_zero(stage):
    """Bitwise as without checkpoints, and as one process to 1e-6 (case D6)."""
    reference = gpt(dropout=0.0)
    plain = torch.optim.AdamW(reference.parameters(), **ADAMW)
    for step in range(3):
        reference(*tokens(step)).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
        plain.zero_grad()
    without = grids(4, stage, "nowhere")
    for (mine, gathers, left), (expected, usual, _) in zip(grids(4, stage, "parts"), without):
        for name, p in reference.named_parameters():
            assert torch.equal(mine[name], expected[name]), name
            assert (mine[name] - p).abs().max() < 1e-6, name
        assert left == [], "a unit stayed gathered"
        assert gathers == usual, "recomputation gathers nothing that backward does not"


class Stack(nn.Module):
    """Blocks that the model itself checkpoints: recomputation passes through the modules' hooks.

    The second block has a frozen LayerNorm, and with `twice` it is used two times.
    """

    def __init__(self, checkpointed, twice):
        super().__init__()
        torch.manual_seed(0)
        self.checkpointed, self.twice = checkpointed, twice
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 7))
            for _ in range(3)
        )
        self.blocks[1][2].requires_grad_(False)
        self.head = nn.Linear(7, 5)

    def forward(self, x):
        first, second, third = self.blocks
        for block in [first, second, *([second] if self.twice else []), third]:
            x = checkpoint(block, x) if self.checkpointed else block(x)
        return self.head(x)


def trained_stack(rank, world_size, stage, checkpointed, twice):
    model = Stack(checkpointed, twice)
    opt = zero.shard(model, stage, **ADAMW)
    for step in range(3):
        loss_of(model, *rows(step, rank, world_size)).backward()
        left = [u.name for u in getattr(opt, "units", []) if u.state.value != "sharded"]
        opt.step()
        opt.zero_grad()
    with opt.full_params():
        return weights(model), left


cases = [(s, c, t) for s in zero.front.STAGES for c in (False, True) for t in (False, True)]
stacks = Together(trained_stack, cases)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("stage", zero.front.STAGES)
def test_the_model_checkpoints_its_blocks(stage, twice):
    """The first input needs no gradient, one block is used twice, a norm is frozen (case D6)."""
    expected = reference(3, lambda: Stack(False, twice), **ADAMW)
    for mine, left in stacks(2, stage, True, twice):
        assert left == [], "a unit stayed gathered"
        for name, p in expected.items():
            assert (mine[name] - p).abs().max() < 1e-6, name
    if not (twice and stage == 3):  # there each use is reduced for itself: other roundings
        (mine, _), (plain, _) = stacks(2, stage, True, twice)[0], stacks(2, stage, False, twice)[0]
        assert all(torch.equal(mine[name], plain[name]) for name in plain)
