"""Parameters without a gradient: on every rank, or on some of them only."""

import pytest
import torch
from torch import nn

import zero
from helpers import (
    ADAMW,
    HIDDEN,
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
    m0,
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
    weights,
)

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


# --- unused parameters ---------------------------------------------------------------------------


class Unused(nn.Module):
    """M0, and a layer that no forward uses."""

    def __init__(self):
        super().__init__()
        self.body, self.unused = m0(), nn.Linear(3, 3)

    def forward(self, x):
        return self.body(x)


def unused_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, make=Unused)
    train_sharded(model, opt)
    states = {s.name for s in opt.slices if opt.inner.state[s.param]}
    return full_weights(model, opt), states


unused_runs = Together(unused_case, BY_STAGE)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_parameter_that_no_rank_used_is_left_alone(stage, n):
    """(case B1) No decay, no moments, no state."""
    by_rank = unused_runs(n, stage)
    assert_equal_to_reference([w for w, _ in by_rank], reference(make=Unused))
    start = weights(Unused())
    for trained, states in by_rank:
        assert torch.equal(trained["unused.weight"], start["unused.weight"])
        assert not any("unused" in name for name in states)


class TwoScalars(nn.Module):
    """w and v of one element, both 1; `forward(use)` returns the sum of those named in `use`."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, use):
        return sum(getattr(self, name) for name in use).sum()


def scalars_case(rank, n, stage, uses):
    model = TwoScalars()
    opt = zero.shard(model, stage, lr=0.1, weight_decay=0.1)
    history = []
    for use in uses:
        model(use).backward()
        opt.step()
        opt.zero_grad()
        history.append({name: p.item() for name, p in full_weights(model, opt).items()})
    steps = {s.name: float(opt.inner.state[s.param].get("step", 0)) for s in opt.slices}
    return history, steps


USES = [("wv", "v"), ("v", "v", "wv"), ("w", "v", "w", "wv")]
scalars_runs = Together(scalars_case, [(stage, uses) for stage in STAGES for uses in USES])


def reference_scalars(uses) -> list[dict[str, float]]:
    model = TwoScalars()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    history = []
    for use in uses:
        model(use).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append({name: p.item() for name, p in model.named_parameters()})
    return history


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("uses", USES)
@pytest.mark.parametrize("stage", STAGES)
def test_every_parameter_counts_its_own_steps(stage, uses, n):
    """(cases B1, B2) What a parameter did not take part in does not touch it."""
    by_rank = scalars_runs(n, stage, uses)
    steps = {}
    for history, of_rank in by_rank:
        for step, wanted in zip(history, reference_scalars(uses), strict=True):
            assert step == pytest.approx(wanted, abs=1e-6)
        steps |= of_rank
    assert steps == {name: sum(name in use for use in uses) for name in "wv"}


@pytest.mark.parametrize("stage", STAGES)
def test_the_figures_of_the_two_commonest_mistakes(stage):
    """Unused in step 2, then not decayed: 0.89, not 0.814094. First used in step 3, with a counter
    of its own: 0.89, not 0.926119."""
    (history, _), _ = scalars_runs(2, stage, ("wv", "v"))
    assert history[1]["w"] == pytest.approx(0.89, abs=1e-6)
    (history, _), _ = scalars_runs(2, stage, ("v", "v", "wv"))
    assert history[1]["w"] == 1.0
    assert history[2]["w"] == pytest.approx(0.89, abs=1e-6)


# --- used on some ranks only ---------------------------------------------------------------------


class Branch(nn.Module):
    """M0 with an extra layer in the middle that a caller may ask for."""

    def __init__(self):
        super().__init__()
        self.body = m0()
        self.extra = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x, branch):
        h = self.body[1](self.body[0](x))
        return self.body[2](self.extra(h) if branch else h)


def branch_loss(model, x, y, branch):
    return nn.functional.mse_loss(model(x, branch), y)


def branch_case(rank, n, stage, takers):
    model, opt = sharded(rank, n, stage, make=Branch)
    for step in range(4):
        branch_loss(model, *rows(step, rank, n), branch=rank in takers).backward()
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt)


def branch_reference(n, takers):
    """One process that averages the ranks' losses: a missing gradient counts as zero."""
    model = Branch()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(4):
        losses = [branch_loss(model, *rows(step, r, n), branch=r in takers) for r in range(n)]
        (sum(losses) / n).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


BRANCHES = [(2, (0,)), (2, (1,)), (4, (0,)), (4, (1, 3)), (2, ())]


@pytest.mark.parametrize(("n", "takers"), BRANCHES)
@pytest.mark.parametrize("stage", [s for s in STAGES if s < 3])
def test_a_layer_that_some_ranks_use(stage, n, takers):
    """(case B3) The average counts a missing gradient as zero."""
    by_rank = on_ranks(branch_case, n, stage, takers)
    assert_equal_to_reference(by_rank, branch_reference(n, takers))
