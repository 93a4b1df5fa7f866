"""Equality: between stages to the last bit, with one process and with torch's own to 1e-6."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zero
from helpers import (
    ADAMW,
    SGD,
    STAGES,
    Together,
    assert_equal_to_reference,
    assert_same_on_all_ranks,
    even_rows,
    full_weights,
    loss_of,
    m0,
    on_ranks,
    reference,
    rows,
    sharded,
    train,
    train_sharded,
    weights,
)
from zero.adam import AdamW
from zero.groups import ELEMENTWISE

WORLDS = (2, 3, 4)
STEPS = 20
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
# What must not change a single bit, by stage: the size of the buckets, the choice of the units,
# the way of reducing, our plain AdamW in place of torch's.
VARIANTS = {
    0: [{"optimizer": AdamW}],
    1: [{"optimizer": AdamW}, {"naive_reduce": True}],
    2: [{"bucket_bytes": 4}, {"bucket_bytes": 300}, {"bucket_bytes": 4, "naive_reduce": True}],
    3: [{"units": [nn.Tanh]}, {"naive_reduce": True}],  # the model as one unit
}


def assert_bitwise(left, right) -> None:
    """Two (losses, weights) are the same bits."""
    assert left[0] == right[0], "the losses differ"
    assert_same_on_all_ranks([left[1], right[1]])


# --- the stages among each other, and one process ------------------------------------------------


def stage_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, optimizer=OPTIMIZERS[name])
    losses = train_sharded(model, opt, STEPS, even_rows)
    return losses, full_weights(model, opt)


STAGE_CASES = list(itertools.product(STAGES, OPTIMIZERS))
stage_runs = Together(stage_case, STAGE_CASES)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "name"), STAGE_CASES)
def test_all_stages_have_the_bits_of_stage_0(stage, name, n):
    for mine, wanted in zip(stage_runs(n, stage, name), stage_runs(n, 0, name), strict=True):
        assert_bitwise(mine, wanted)


def variant_case(rank, n, stage, variant, name):
    options = {"optimizer": OPTIMIZERS[name], **VARIANTS[stage][variant]}
    model, opt = sharded(rank, n, stage, **options)
    losses = train_sharded(model, opt, STEPS, even_rows)
    return losses, full_weights(model, opt)


VARIANT_CASES = [
    (stage, i, name)
    for stage in STAGES
    for i, variant in enumerate(VARIANTS[stage])
    for name in OPTIMIZERS
    if name == "adamw" or "optimizer" not in variant
]
variant_runs = Together(variant_case, VARIANT_CASES)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "variant", "name"), VARIANT_CASES)
def test_what_changes_no_bit(stage, variant, name, n):
    by_rank = variant_runs(n, stage, variant, name)
    for mine, wanted in zip(by_rank, stage_runs(n, 0, name), strict=True):
        assert_bitwise(mine, wanted)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("stage", STAGES)
def test_equal_to_one_process(stage, name, n):
    by_rank = stage_runs(n, stage, name)
    data = lambda step: even_rows(step, per_rank=2 * n)  # noqa: E731
    expected = reference(STEPS, optimizer=OPTIMIZERS[name], data=data)
    assert_equal_to_reference([w for _, w in by_rank], expected)
    model = m0()
    hyper = SGD if name == "sgd" else ADAMW
    losses = train(model, OPTIMIZERS[name](model.parameters(), **hyper), data, STEPS)
    mean = [sum(of_step) / n for of_step in zip(*(losses for losses, _ in by_rank))]
    assert mean == pytest.approx(losses, abs=1e-6)


# --- a transformer, in three precisions ----------------------------------------------------------


def gpt_case(rank, n, stage, precision, tied, units=None):
    torch.manual_seed(rank)
    model = zero.models.GPT(11, 8, layers=1, heads=2, width=16, tied=tied)
    options = {} if units is None else {"units": UNITS[units]}
    opt = zero.shard(model, stage, precision=precision, lr=1e-2, **options)
    if opt.loss_scale is not None:
        opt.loss_scale.scale = 2.0**10
    losses = []
    for step in range(4):
        generator = torch.Generator().manual_seed(10 * step + rank)
        tokens = torch.randint(11, (2, 9), generator=generator)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        opt.scale(loss).backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    masters = {b.master.dtype for b in opt.buckets}
    return losses, full_weights(model, opt), masters, opt.skipped


UNITS = {
    "blocks": [zero.models.Block],
    "halves of a block": [zero.models.Attention, zero.models.FeedForward],
    "every layer": [nn.Linear, nn.Embedding, nn.LayerNorm],
}
GPT_KINDS = [("fp32", False), ("fp32", True), ("bf16", True), ("fp16", False)]
UNIT_CASES = [(3, "fp32", tied, units) for tied in (False, True) for units in UNITS]
UNIT_CASES = [case for case in UNIT_CASES if case[0] in STAGES]
gpt_runs = Together(
    gpt_case, [(stage, *kind) for stage in STAGES for kind in GPT_KINDS] + UNIT_CASES
)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize(("precision", "tied"), GPT_KINDS)
@pytest.mark.parametrize("stage", STAGES)
def test_gpt(stage, precision, tied):
    """In fp32 all stages have the same bits. In 16 bit, stage 0 rounds the averaged gradient to 16
    bits, to send it; the others keep it in fp32 where it is used."""
    by_rank = gpt_runs(2, stage, precision, tied)
    baseline = gpt_runs(2, 0 if precision == "fp32" else min(stage, 1), precision, tied)
    for mine, wanted in zip(by_rank, baseline, strict=True):
        assert_bitwise(mine, wanted)
        losses, trained, masters, skipped = mine
        assert {w.dtype for w in trained.values()} == {DTYPES[precision]}
        assert (masters, skipped) == ({torch.float32}, 0)
        assert losses[3] != losses[0]
    assert_same_on_all_ranks([trained for _, trained, *_ in by_rank])


@pytest.mark.parametrize("case", UNIT_CASES)
def test_the_choice_of_units_changes_no_bit(case):
    tied = case[2]
    for mine, wanted in zip(gpt_runs(2, *case), gpt_runs(2, 0, "fp32", tied), strict=True):
        assert_bitwise(mine, wanted)


@pytest.mark.parametrize(("precision", "tied"), [("bf16", True), ("fp16", False)])
@pytest.mark.parametrize("stage", STAGES)
def test_16_bit_stays_near_fp32(stage, precision, tied):
    (losses, *_), _ = gpt_runs(2, stage, precision, tied)
    (exact, *_), _ = gpt_runs(2, stage, "fp32", tied)
    assert losses == pytest.approx(exact, abs=0.02)
    assert losses != exact


# --- torch's own data parallelism ----------------------------------------------------------------


def peer_case(rank, n, name):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns where it is imported

    model = DistributedDataParallel(m0())
    optimizer = OPTIMIZERS[name](model.parameters(), **(SGD if name == "sgd" else ADAMW))
    data = lambda step: even_rows(step, rank, n)  # noqa: E731
    ddp = train(model, optimizer, data, STEPS), weights(model.module)
    model = DistributedDataParallel(m0())
    hyper = SGD if name == "sgd" else ADAMW
    optimizer = ZeroRedundancyOptimizer(model.parameters(), OPTIMIZERS[name], **hyper)
    return ddp, (train(model, optimizer, data, STEPS), weights(model.module))


peer_runs = Together(peer_case, [("adamw",), ("sgd",)])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("stage", STAGES)
def test_equal_to_torchs_ddp_and_zero_redundancy_optimizer(stage, name, n):
    ours, theirs = stage_runs(n, stage, name), peer_runs(n, name)
    for (losses, mine), peers in zip(ours, theirs, strict=True):
        for peer_losses, peer_weights in peers:
            assert losses == pytest.approx(peer_losses, abs=1e-6)
            assert_equal_to_reference([peer_weights], mine)


# --- every optimizer that is let in --------------------------------------------------------------

NAMES = sorted(o.__name__ for o in ELEMENTWISE)


def optimizer_case(rank, n, stage, name):
    optimizer = getattr(torch.optim, name)
    model, opt = sharded(rank, n, stage, optimizer=optimizer, lr=1e-2)
    train_sharded(model, opt)
    return full_weights(model, opt)


OPTIMIZER_CASES = list(itertools.product(STAGES, NAMES))
optimizer_runs = Together(optimizer_case, OPTIMIZER_CASES)


@pytest.mark.parametrize(("stage", "name"), OPTIMIZER_CASES)
def test_elementwise_optimizers(stage, name):
    expected = reference(optimizer=getattr(torch.optim, name), lr=1e-2)
    assert_equal_to_reference(optimizer_runs(2, stage, name), expected, atol=2e-6)


def fused_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, fused=True, **ADAMW)
    train_sharded(model, opt)
    return full_weights(model, opt)


fused_runs = Together(fused_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_fused_adamw_can_be_asked_for(stage):
    assert_equal_to_reference(fused_runs(2, stage), reference())


# --- groups of ranks, and models side by side ----------------------------------------------------


def pairs_case(rank, n, stage):
    """Ranks 0, 1 train one model, ranks 2, 3 another one on other data."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = m0(seed=rank // 2)
    opt = zero.shard(model, stage, group=pairs[rank // 2], **ADAMW)
    first = 4 * (rank // 2)
    train_sharded(model, opt, range(first, first + 4))
    return full_weights(model, opt), (opt.rank, opt.world_size)


pairs_runs = Together(pairs_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_two_groups_of_ranks(stage):
    by_rank = pairs_runs(4, stage)
    assert [where for _, where in by_rank] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    trained = [w for w, _ in by_rank]
    assert_equal_to_reference(trained[:2], reference(range(0, 4)))
    assert_equal_to_reference(trained[2:], reference(range(4, 8), make=lambda: m0(seed=1)))


def two_models_case(rank, n, stage):
    """The second one trains on the outputs of the first, with another optimizer."""
    first, opt1 = sharded(rank, n, stage)
    second, opt2 = sharded(rank, n, stage, make=second_model, optimizer=torch.optim.SGD)
    for step in range(4):
        x, y = rows(step, rank, n)
        nn.functional.mse_loss(second(first(x)), y).backward()
        for opt in (opt1, opt2):
            opt.step()
            opt.zero_grad()
    return full_weights(first, opt1), full_weights(second, opt2)


def second_model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 5))


two_models_runs = Together(two_models_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_two_models_at_once(stage):
    first, second = m0(), second_model()
    opt1 = torch.optim.AdamW(first.parameters(), **ADAMW)
    opt2 = torch.optim.SGD(second.parameters(), **SGD)
    for step in range(4):
        loss_of(nn.Sequential(first, second), *rows(step)).backward()
        for opt in (opt1, opt2):
            opt.step()
            opt.zero_grad()
    by_rank = two_models_runs(2, stage)
    assert_equal_to_reference([w for w, _ in by_rank], weights(first))
    assert_equal_to_reference([w for _, w in by_rank], weights(second))


def loose_case(rank, n, stage):
    model = m0(seed=rank)
    opt = zero.shard(list(model.parameters()), stage, **ADAMW)
    train_sharded(model, opt)
    return weights(model), list(opt.names.values())


@pytest.mark.parametrize("n", (2, 4))
def test_parameters_without_their_module(n):
    by_rank = on_ranks(loose_case, n, 1)
    assert_equal_to_reference([w for w, _ in by_rank], reference())
    assert by_rank[0][1] == ["0", "1", "2", "3"]
