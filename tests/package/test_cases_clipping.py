"""Norms and clipping over shards: every rank gets the norm of the whole gradient."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import zero
from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
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
from zero import clip

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]
NORM_TYPES = (1.0, 2.0, 3.0, math.inf)


class Vectors(nn.Module):
    """Parameters a and b; the gradient of `forward(*gradients)` is what it was given."""

    def __init__(self, *sizes):
        super().__init__()
        for name, size in zip("ab", sizes):
            self.register_parameter(name, nn.Parameter(torch.ones(size)))

    def forward(self, *gradients):
        return sum((p * torch.tensor(g)).sum() for p, g in zip(self.parameters(), gradients))


# --- the arithmetic, without ranks ---------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(st.floats(-100, 100, width=32), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4).map(sorted),
    norm_type=st.sampled_from(NORM_TYPES),
)
def test_the_norm_does_not_depend_on_who_owns_what(values, cuts, norm_type):
    """(case C3)"""
    whole = torch.tensor(values)
    parts = [whole[a:b] for a, b in itertools.pairwise([0, *cuts, len(values)])]
    powers = [clip.shard_power([part], norm_type) for part in parts]
    norm = clip.combine_powers(powers, norm_type)
    assert norm == pytest.approx(
        clip.combine_powers([clip.shard_power(parts, norm_type)], norm_type)
    )
    if values:
        expected = torch.linalg.vector_norm(whole.double(), norm_type).item()
        assert norm == pytest.approx(expected, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize("norm_type", NORM_TYPES)
def test_inf_and_nan_are_not_hidden(norm_type):
    """(case C5) Nor does a maximum forget NaN."""
    good, bad = torch.ones(3), torch.tensor([1.0, math.inf])
    powers = [clip.shard_power([good], norm_type), clip.shard_power([good, bad], norm_type)]
    assert clip.combine_powers(powers, norm_type) == math.inf
    nan = [clip.shard_power([torch.tensor([math.nan, 1.0])], norm_type), *powers]
    assert math.isnan(clip.combine_powers(nan, norm_type))
    assert math.isnan(clip.combine_powers(nan[::-1], norm_type))


def test_no_gradient_has_norm_zero():
    for norm_type in NORM_TYPES:
        assert clip.combine_powers([clip.shard_power([], norm_type)] * 2, norm_type) == 0.0


# --- by numbers ----------------------------------------------------------------------------------


def numbers_case(rank, n, stage, gradient):
    model = Vectors(len(gradient))
    opt = zero.shard(model, stage, torch.optim.SGD, lr=1.0)
    model(gradient).backward()
    norm = opt.clip_grad_norm_(1.0)
    grads = {s.start: s.param.grad.tolist() for s in opt.slices}
    after = opt.grad_norm()
    again = opt.clip_grad_norm_(10.0).item()
    opt.step()
    return norm.item(), norm.dtype, grads, after, again, full_weights(model, opt)["a"].tolist()


GRADIENTS = [(3.0, 4.0), (3.0, 4.0, 0.0, 0.0), (0.0, 0.0, 3.0, 4.0), (0.0, 3.0, 0.0, 4.0)]
numbers = Together(numbers_case, list(itertools.product(STAGES, GRADIENTS)))


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("stage", STAGES)
def test_clipping_by_the_norm_of_all_shards(stage, gradient, n):
    """(cases C1, C3, C7, C8) The norm 5 on every rank, gradients scaled by 1/5 in place."""
    grads = {}
    for norm, dtype, of_rank, after, again, trained in numbers(n, stage, gradient):
        assert (norm, dtype) == (5.0, torch.float32)
        assert after == pytest.approx(1.0, rel=1e-6) and after <= 1.0 + 1e-6
        assert again == pytest.approx(after), "clipped by a limit that was not reached"
        assert trained == pytest.approx([1 - g / 5 for g in gradient], abs=1e-6)
        grads |= of_rank
    shards = [g for start in sorted(grads) for g in grads[start]]
    assert shards == pytest.approx([g / 5 for g in gradient], abs=1e-6)


# --- on M0 ---------------------------------------------------------------------------------------


def clipped(norms, max_norm, norm_type):
    """`before_step`: clip, and keep the norms before and after, ours or torch's."""

    def before_step(opt, step):
        if isinstance(opt, zero.ZeroOptimizer):
            norms.append(
                (opt.clip_grad_norm_(max_norm, norm_type).item(), opt.grad_norm(norm_type))
            )
        else:
            params = opt.param_groups[0]["params"]
            before = nn.utils.clip_grad_norm_(params, max_norm, norm_type).item()
            norms.append(
                (before, nn.utils.get_total_norm([p.grad for p in params], norm_type).item())
            )

    return before_step


def norms_case(rank, n, stage, max_norm, norm_type):
    model, opt = sharded(rank, n, stage)
    norms = []
    train_sharded(model, opt, before_step=clipped(norms, max_norm, norm_type))
    return full_weights(model, opt), norms


LIMITS = [(0.01, p) for p in NORM_TYPES] + [(0.05, 2.0), (100.0, 2.0)]
norm_runs = Together(norms_case, [(stage, *limit) for stage in STAGES for limit in LIMITS])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("max_norm", "norm_type"), LIMITS)
@pytest.mark.parametrize("stage", STAGES)
def test_norms_equal_torchs(stage, max_norm, norm_type, n):
    """(cases C1, C2, C7)"""
    wanted = []
    expected = reference(before_step=clipped(wanted, max_norm, norm_type))
    by_rank = norm_runs(n, stage, max_norm, norm_type)
    # Adam divides a small gradient by its own size: what differs in the last bit of the norm
    # differs in the last bits of the update.
    assert_equal_to_reference([w for w, _ in by_rank], expected)
    assert len({tuple(norms) for _, norms in by_rank}) == 1, "ranks have different norms"
    for (before, after), (torchs, torchs_after) in zip(by_rank[0][1], wanted, strict=True):
        assert before == pytest.approx(torchs, rel=1e-5)
        assert after == pytest.approx(torchs_after, rel=1e-5)
        assert after <= max_norm * (1 + 1e-6)


def unclipped_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, optimizer=torch.optim.SGD, lr=1e-2)
    start = full_weights(model, opt)
    (20 * loss_of(model, *rows(0, rank, n))).backward()
    norm = opt.grad_norm()
    opt.step()
    return start, full_weights(model, opt), norm


unclipped = Together(unclipped_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_clipped_that_was_not_asked_for(stage):
    """(case C9) The gradient's norm is far above 1, and SGD moves the weights by lr times it."""
    model = m0()
    (20 * loss_of(model, *rows(0))).backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    whole = torch.cat([g.reshape(-1) for g in grads.values()]).norm().item()
    assert whole > 2.9
    for start, after, norm in unclipped(2, stage):
        assert norm == pytest.approx(whole, rel=1e-5)
        for name, grad in grads.items():
            assert torch.allclose(start[name] - after[name], 1e-2 * grad, atol=1e-6)


class PartlyUsed(nn.Module):
    """A frozen layer, an unused one, and a tied weight around M0."""

    def __init__(self):
        super().__init__()
        self.body = m0()
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(7, 7).requires_grad_(False)
        self.tied = nn.Linear(13, 5)
        self.tied.weight = self.body[2].weight

    def forward(self, x):
        h = torch.tanh(self.body[0](self.frozen(x)))
        return self.body[2](h) + self.tied(h)


def partly_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, make=PartlyUsed)
    norms = []
    train_sharded(model, opt, before_step=clipped(norms, 0.05, 2.0))
    return full_weights(model, opt), norms


partly = Together(partly_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_norm_of_tied_frozen_and_unused_parameters(stage):
    """Tied once, frozen and unused not at all."""
    model = PartlyUsed()
    params = [p for p in model.parameters() if p.requires_grad]
    norms = []

    def before_step(opt, step):
        norms.append(nn.utils.clip_grad_norm_(params, 0.05).item())

    train(model, torch.optim.AdamW(params, **ADAMW), rows, before_step=before_step)
    by_rank = partly(2, stage)
    assert_equal_to_reference([w for w, _ in by_rank], weights(model))
    for _, ours in by_rank:
        assert [before for before, _ in ours] == pytest.approx(norms, rel=1e-5)


def limits_case(rank, n, stage):
    model = Vectors(3)
    opt = zero.shard(model, stage, torch.optim.SGD, lr=1.0)
    nothing = opt.clip_grad_norm_(1.0).item(), opt.clip_grad_norm_(1.0, math.inf).item()
    texts = []
    for limit in (0.0, -1.0):
        try:
            opt.clip_grad_norm_(limit)
        except ValueError as error:
            texts.append(str(error))
    return nothing, texts


limits = Together(limits_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_without_gradients_and_with_impossible_limits(stage):
    for nothing, texts in limits(2, stage):
        assert nothing == (0.0, 0.0)
        assert texts == ["max_norm=0.0 must be positive", "max_norm=-1.0 must be positive"]
