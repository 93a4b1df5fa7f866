"""Gradients that are missing, come late, in parts, or on some ranks only."""

import itertools
import math

import pytest
import torch
from torch import nn

import zero
from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    assert_same_on_all_ranks,
    full_weights,
    loss_of,
    m0,
    reference,
    rows,
    sharded,
    train,
    train_sharded,
    weights,
)
from zero import comm

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


# --- accumulation --------------------------------------------------------------------------------


def micro_batches(step, rank, n, count):
    """This rank's rows in `count` parts. Rank 1's rows are 10 times as large as the others'."""
    x, y = rows(step, rank, n)
    x = x * 10 if rank == 1 else x
    return list(zip(x.chunk(count), y.chunk(count), strict=True))


def accumulation_case(rank, n, stage, count, how):
    model, opt = sharded(rank, n, stage)
    after_each_step = []
    counts = []
    for step in range(3):
        with comm.record() as log:
            for i, (x, y) in enumerate(micro_batches(step, rank, n, count)):
                last = i == count - 1
                if how == "no_sync" and not last:
                    with opt.no_sync():
                        (loss_of(model, x, y) / count).backward()
                else:
                    (loss_of(model, x, y) / count).backward()
                counts.append(len(log.entries))
        opt.step()
        opt.zero_grad(set_to_none=how != "zero")
        after_each_step.append(full_weights(model, opt))
    return after_each_step, counts


ACCUMULATIONS = [(1, "plain"), (2, "plain"), (4, "plain"), (2, "no_sync"), (4, "zero")]
accumulations = Together(accumulation_case, [(s, c, h) for s in STAGES for c, h in ACCUMULATIONS])


@pytest.mark.parametrize(("count", "how"), ACCUMULATIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_accumulated_micro_batches(stage, count, how):
    """(cases B5, B6, B7) `step` marks the boundary; nothing is lost, doubled, or kept local."""
    by_rank = accumulations(2, stage, count, how)
    model = m0()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(3):
        for rank in range(2):
            for x, y in micro_batches(step, rank, 2, count):
                (loss_of(model, x, y) / count / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert_equal_to_reference([states[step] for states, _ in by_rank], weights(model))
    if stage < 2:
        assert not any(any(counts) for _, counts in by_rank), "communication before `step`"


# --- the reduction -------------------------------------------------------------------------------


def repeat_case(rank, n, stage, repetition):
    """Buckets of 16 elements: many collectives in flight at once."""
    model, opt = sharded(rank, n, stage, bucket_bytes=64)
    losses = train_sharded(model, opt, 50)
    return losses, full_weights(model, opt)


REPEATS = [*itertools.product((s for s in STAGES if s > 1), range(5)), (0, 0)]
repeats = Together(repeat_case, REPEATS)


@pytest.mark.parametrize(("stage", "repetition"), REPEATS)
def test_overlapped_reductions_do_not_touch_each_other(stage, repetition):
    """(case B11) Five runs have the same bits, those of stage 0, which overlaps nothing."""
    mine, wanted = repeats(2, stage, repetition), repeats(2, 0, 0)
    for (losses, trained), (wanted_losses, wanted_weights) in zip(mine, wanted, strict=True):
        assert losses == wanted_losses
        assert_same_on_all_ranks([trained, wanted_weights])


def path_case(rank, n, stage, naive):
    model, opt = sharded(rank, n, stage, naive_reduce=naive)
    with comm.record() as log:
        train_sharded(model, opt, 8)
    reductions = {e.op for e in log.entries if e.kind == "data"} - {"all_gather"}
    return full_weights(model, opt), reductions, log.bytes(op="reduce_scatter")


PATHS = list(itertools.product([s for s in STAGES if s], (False, True)))
paths = Together(path_case, [(0, False), *PATHS])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "naive"), PATHS)
def test_both_ways_to_reduce(stage, naive, n):
    """(case B12) An all-reduce of which most is thrown away, or a reduce-scatter: same numbers."""
    baseline = [w for w, *_ in paths(n, 0, False)]
    for (trained, reductions, _), wanted in zip(paths(n, stage, naive), baseline, strict=True):
        assert_same_on_all_ranks([trained, wanted])
        assert reductions == ({"all_reduce"} if naive else {"reduce_scatter"})
    assert_equal_to_reference(baseline, reference(8))


def fp16_case(rank, n, stage):
    """Gradients of 20000 and of the smallest fp16 number on each of four ranks."""
    model = nn.Linear(2, 1, bias=False)
    opt = zero.shard(model, stage, torch.optim.SGD, precision="fp16", lr=1.0)
    opt.loss_scale.scale = 1.0
    x = torch.tensor([[20000.0, 2.0**-24]], dtype=torch.float16)
    opt.scale(model(x).sum()).backward()
    opt.reduce()
    return {s.start: s.param.grad.tolist() for s in opt.slices}


fp16_runs = Together(fp16_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_mean_of_fp16_gradients(stage):
    """(case B8) Exact: neither inf on the way, nor zero."""
    grads = {}
    for of_rank in fp16_runs(4, stage):
        grads |= of_rank
    assert [g for start in sorted(grads) for g in grads[start]] == [20000.0, 2.0**-24]


# --- several forwards ----------------------------------------------------------------------------


def two_forwards_case(rank, n, stage, how):
    model, opt = sharded(rank, n, stage)
    train_twice(model, opt, lambda step: rows(step, rank, n), how)
    return full_weights(model, opt)


def train_twice(model, opt, data, how):
    for step in range(4):
        x, y = data(step)
        first = nn.functional.mse_loss(model(x), y)
        second = nn.functional.mse_loss(model(2 * x), y)
        if how == "one backward":
            ((first + second) / 2).backward()
        elif how == "two backwards":
            first.backward()
            second.backward()
        else:
            second.backward(retain_graph=True)
            second.backward()
        opt.step()
        opt.zero_grad()


HOWS = ("one backward", "two backwards", "backward again")
two_forwards = Together(two_forwards_case, list(itertools.product(STAGES, HOWS)))


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("stage", STAGES)
def test_two_forwards_before_a_step(stage, how, n):
    """(case B14)"""
    model = m0()
    train_twice(model, torch.optim.AdamW(model.parameters(), **ADAMW), rows, how)
    assert_equal_to_reference(two_forwards(n, stage, how), weights(model))


class CalledTwice(nn.Module):
    """One layer is applied twice in a forward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(7, 7), nn.Linear(7, 5)

    def forward(self, x):
        return self.b(torch.tanh(self.a(torch.tanh(self.a(x)))))


def called_twice_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, make=CalledTwice)
    with comm.record() as log:
        train_sharded(model, opt)
    reductions = [e for e in log.entries if e.op in ("reduce_scatter", "all_reduce")]
    return full_weights(model, opt), len(reductions), len(opt.buckets)


called_twice = Together(called_twice_case, BY_STAGE)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_module_called_twice_is_reduced_once(stage, n):
    """(case B15)"""
    by_rank = called_twice(n, stage)
    assert_equal_to_reference([w for w, *_ in by_rank], reference(make=CalledTwice))
    for _, reductions, buckets in by_rank:
        assert reductions == 4 * buckets


# --- backward, step and their order --------------------------------------------------------------


def order_case(rank, n, stage):
    """`step` without a backward; a second `step`; a backward where `zero_grad` was forgotten."""
    model, opt = sharded(rank, n, stage)
    start = full_weights(model, opt)
    opt.step()
    untouched = full_weights(model, opt)
    opt.zero_grad()
    loss_of(model, *rows(0, rank, n)).backward()
    opt.step()
    try:
        loss_of(model, *rows(1, rank, n)).backward()
        text = "no error"
    except RuntimeError as error:
        text = str(error)
    opt.zero_grad()
    trained = full_weights(model, opt)
    train_sharded(model, opt, range(1, 4))
    return start, untouched, trained, text, full_weights(model, opt)


orders = Together(order_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_steps_and_backwards_out_of_order(stage):
    """(case B18) `loss.backward()` is all that is needed; without gradients nothing moves."""
    by_rank = orders(2, stage)
    for start, untouched, _, text, _ in by_rank:
        assert_same_on_all_ranks([start, untouched])
        assert "zero_grad" in text
    assert_equal_to_reference([r[2] for r in by_rank], reference(1))
    assert_equal_to_reference([r[4] for r in by_rank], reference(4))


def loss_history_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, optimizer=torch.optim.SGD, lr=0.1)
    return train_sharded(model, opt, [0] * 30)


loss_histories = Together(loss_history_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_it_learns(stage):
    for losses in loss_histories(2, stage):
        assert losses[-1] < 0.7 * losses[0]
        assert all(math.isfinite(loss) for loss in losses)
    model = m0()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    assert sum(losses[-1] for losses in loss_histories(2, stage)) / 2 == pytest.approx(
        train(model, sgd, rows, [0] * 30)[-1], abs=1e-5
    )
