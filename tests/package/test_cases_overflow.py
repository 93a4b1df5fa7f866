"""inf and NaN: one decision for all ranks, and then nothing moves."""

import itertools
import math
import warnings

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
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
)
from zero.precision import LossScale

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


class TwoParts(nn.Module):
    """Parameters a and b of 2 elements: on 2 ranks rank 0 owns a and rank 1 owns b."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def forward(self, a, b):
        return (self.a * a + self.b * b).sum()


def states_of(opt) -> dict[str, torch.Tensor]:
    """Copies of the inner optimizer's states by name."""
    return {
        f"{s.name}.{s.start}.{key}": value.clone()
        for s in opt.slices
        for key, value in opt.inner.state[s.param].items()
    }


# --- in one shard --------------------------------------------------------------------------------


def bad_case(rank, n, stage, bad, error):
    """A good step, then one with inf or NaN in b only."""
    model = TwoParts()
    opt = zero.shard(model, stage, **ADAMW)
    model(1.0, 1.0).backward()
    opt.step()
    opt.zero_grad()
    before = full_weights(model, opt), states_of(opt)
    model(1.0, bad).backward()
    text = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            norm = opt.clip_grad_norm_(1.0, error_if_nonfinite=error).item()
        except RuntimeError as caught_error:
            norm, text = bad, str(caught_error)
        opt.step()
    after = full_weights(model, opt), states_of(opt)
    said = [str(w.message) for w in caught]
    result = norm, text, opt.stepped, opt.skipped, said
    opt.zero_grad()
    model(1.0, 1.0).backward()
    opt.step()
    return before, after, result, (opt.stepped, opt.skipped)


BAD = list(itertools.product((math.inf, math.nan), (False, True)))
bad_runs = Together(bad_case, [(stage, *bad) for stage in STAGES for bad in BAD])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("bad", "error"), BAD)
@pytest.mark.parametrize("stage", STAGES)
def test_a_bad_value_in_one_shard_stops_all_ranks(stage, bad, error, n):
    """(case C5) No weight, moment or counter moves; the norm is inf or NaN; b is named."""
    for rank, (before, after, result, later) in enumerate(bad_runs(n, stage, bad, error)):
        for left, right in zip(before, after, strict=True):
            assert_same_on_all_ranks([left, right])
        norm, text, stepped, skipped, said = result
        assert norm == bad or (math.isnan(norm) and math.isnan(bad))
        assert (stepped, skipped) == (False, 1)
        if error:
            assert f"the gradient norm is {bad}" in text and text.endswith("gradient of b")
        warning = "step 2: inf or NaN in the gradients or their norm, no update"
        wanted = [warning] if rank == 0 else []
        assert [line for line in said if "inf or NaN" in line] == wanted
        assert later == (True, 1)


# --- fp16 and the loss scale ---------------------------------------------------------------------


def fp16_loss(model, x, y):
    """Small, so that its gradients times 2^16 fit into fp16."""
    return 0.01 * nn.functional.mse_loss(model(x.half()).float(), y)


def fp32_loss(model, x, y):
    return 0.01 * loss_of(model, x, y)


def overflow_case(rank, n, stage):
    """inf in rank 1's loss of step 2, with a warm-up of the learning rate beside it."""
    model, opt = sharded(rank, n, stage, precision="fp16")
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: (step + 1) / 4)
    trace = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(4):
            loss = fp16_loss(model, *rows(step, rank, n))
            if step == 2 and rank == 1:
                loss = loss * math.inf
            opt.scale(loss).backward()
            opt.step()
            if opt.stepped:
                scheduler.step()
            opt.zero_grad()
            counters = {float(opt.inner.state[s.param]["step"]) for s in opt.slices}
            lr = opt.param_groups[0]["lr"]
            trace.append((opt.stepped, opt.skipped, opt.loss_scale.scale, lr, counters))
    return full_weights(model, opt), trace


overflows = Together(overflow_case, BY_STAGE)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("stage", STAGES)
def test_overflow_on_one_rank_is_everybodys(stage, n):
    """(cases C10, C13) All skip step 2, halve the scale, and keep counters and schedule."""
    by_rank = overflows(n, stage)
    expected = reference(
        [0, 1, 3],
        loss=fp32_loss,
        before_step=lambda opt, step: opt.param_groups[0].update(
            lr=ADAMW["lr"] * {0: 1, 1: 2, 3: 3}[step] / 4
        ),
    )
    half = [{k: w.float() for k, w in trained.items()} for trained, _ in by_rank]
    assert_equal_to_reference(half, expected, atol=1e-3)
    for _, trace in by_rank:
        stepped, skipped, scales, rates, counters = zip(*trace, strict=True)
        assert stepped == (True, True, False, True)
        assert skipped == (0, 0, 1, 1)
        assert scales == (2.0**16, 2.0**16, 2.0**15, 2.0**15)
        assert rates == pytest.approx([ADAMW["lr"] * k / 4 for k in (2, 3, 3, 4)])
        assert counters == ({1.0}, {2.0}, {2.0}, {3.0})


def unscaled_case(rank, n, stage):
    """The norm does not show the scale; a loss that was not scaled is refused."""
    model, opt = sharded(rank, n, stage, precision="fp16")
    x, y = rows(0, rank, n)
    opt.scale(fp16_loss(model, x, y)).backward()
    norm = opt.clip_grad_norm_(1e-4).item(), opt.grad_norm()
    opt.zero_grad()
    fp16_loss(model, x, y).backward()
    try:
        opt.step()
        text = "no error"
    except RuntimeError as error:
        text = str(error)
    return norm, text


unscaled = Together(unscaled_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_norms_are_those_of_the_unscaled_gradient(stage):
    model = m0()
    fp32_loss(model, *rows(0)).backward()
    whole = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm().item()
    for (before, after), text in unscaled(2, stage):
        assert before == pytest.approx(whole, rel=1e-2)
        assert after == pytest.approx(1e-4, rel=2e-2)
        assert "opt.scale(loss).backward()" in text


def fp16_itself_case(rank, n, stage):
    """A loss that is fp16 itself: 2.0 times 2^16 is not an fp16 number any more."""
    model, opt = sharded(rank, n, stage, precision="fp16", make=lambda: nn.Linear(7, 5))
    trace = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(3):
            loss = loss_of(model, *(t.half() for t in rows(step, rank, n))) * 0.01 + 2.0
            scaled = opt.scale(loss)
            trace.append((loss.dtype, scaled.dtype, scaled.item() / loss.item()))
            scaled.backward()
            opt.step()
            opt.zero_grad()
            trace.append((opt.stepped, opt.loss_scale.scale))
    return trace


@pytest.mark.parametrize("stage", STAGES)
def test_a_loss_in_fp16_is_scaled_in_fp32(stage):
    """Its gradient, 2^16, is too large as well: that costs one update, as any overflow does."""
    for trace in on_ranks(fp16_itself_case, 2, stage):
        scaled, steps = trace[::2], trace[1::2]
        assert {(a, b) for a, b, _ in scaled} == {(torch.float16, torch.float32)}
        assert [factor for *_, factor in scaled] == [2.0**16, 2.0**15, 2.0**15]
        assert steps == [(False, 2.0**15), (True, 2.0**15), (True, 2.0**15)]


def test_the_loss_scale_by_itself():
    scale = LossScale(scale=4.0, growth_interval=3)
    for overflow, wanted in [
        *((False, 4), (False, 4), (False, 8), (True, 4), (False, 4), (False, 4)),
        *((True, 2), (True, 1), (True, 1), (False, 1), (False, 1), (False, 2)),
    ]:
        scale.update(overflow)
        assert scale.scale == wanted


# --- many skips ----------------------------------------------------------------------------------


def skips_case(rank, n, stage):
    """NaN in steps 1 to 3 of a bf16 model; two skips in a row are allowed."""
    model, opt = sharded(rank, n, stage, precision="bf16", max_skips=2)
    counts, text = [], ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for step in range(4):
                x, y = rows(step, rank, n)
                factor = math.nan if step and rank == 0 else 1.0
                loss = nn.functional.mse_loss(model(x.bfloat16()).float(), y) * factor
                loss.backward()
                opt.step()
                opt.zero_grad()
                counts.append(opt.skipped)
        except FloatingPointError as error:
            text = str(error)
    return counts, text, len([w for w in caught if "no update" in str(w.message)])


skips = Together(skips_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_skips_are_counted_told_and_limited(stage):
    """(case C11) One warning for each on rank 0; an error on all ranks after `max_skips`."""
    for rank, (counts, text, told) in enumerate(skips(2, stage)):
        assert counts == [0, 1, 2]
        assert "3 updates in a row were skipped" in text and "0.weight" in text
        assert told == (2 if rank == 0 else 0)


def counters_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    train_sharded(model, opt)
    return [float(opt.inner.state[s.param]["step"]) for s in opt.slices]


@pytest.mark.parametrize("stage", STAGES)
def test_one_step_is_one_step(stage):
    """(case C14) However many parameters a rank owns, each of them counts once a step."""
    for steps in on_ranks(counters_case, 2, stage):
        assert steps and set(steps) == {4.0}


def large_case(rank, n, stage):
    """Finite gradients whose norm is inf in fp32; then an ordinary step."""
    model, opt = sharded(rank, n, stage)
    before = full_weights(model, opt)
    x, y = rows(0, rank, n)
    (loss_of(model, x, y) * 1e25).backward()
    norm = opt.clip_grad_norm_(1.0).item()
    with warnings.catch_warnings(record=True):
        opt.step()
    stepped = [opt.stepped]
    after = full_weights(model, opt)
    opt.zero_grad()
    train_sharded(model, opt)
    return norm, [*stepped, opt.stepped], before, after, full_weights(model, opt)


@pytest.mark.parametrize("stage", STAGES)
def test_a_norm_that_overflows_skips_the_step_that_it_could_not_clip(stage):
    by_rank = on_ranks(large_case, 2, stage)
    for norm, stepped, before, after, _ in by_rank:
        assert norm == float("inf")
        assert stepped == [False, True]
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert_equal_to_reference([trained for *_, trained in by_rank], reference())
