"""Losses made of what a module has left beside its output."""

import itertools

import pytest
import torch
from torch import nn

from helpers import (
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
    reference,
    rows,
    sharded,
    train_sharded,
)


class Expert(nn.Module):
    """A layer with an auxiliary loss, computed first or last; the gain is used elementwise."""

    def __init__(self, where, late):
        super().__init__()
        self.layer, self.gate = nn.Linear(13, 13), nn.Linear(13, 13)
        self.gain = nn.Parameter(torch.full((13,), 1.1))
        self.where, self.late = where, late
        self.losses, self.aux = [], None

    def forward(self, x, losses):
        if self.late:
            out = torch.tanh(self.layer(x))
        aux = (self.gate(x) * self.gain).pow(2).mean()
        if self.where == "attribute":
            self.aux = aux
        else:
            (losses if self.where == "argument" else self.losses).append(aux)
        return out if self.late else torch.tanh(self.layer(x))


class Experts(nn.Module):
    def __init__(self, where, late):
        super().__init__()
        torch.manual_seed(0)
        self.start, self.end = nn.Linear(7, 13), nn.Linear(13, 5)
        self.blocks = nn.ModuleList([Expert(where, late), Expert(where, late)])

    def forward(self, x):
        x, self.losses = self.start(x), []
        for block in self.blocks:
            block.losses = []
            x = block(x, self.losses)
        return self.end(x)

    def auxiliary(self):
        own = [loss for b in self.blocks for loss in (b.losses if b.aux is None else [b.aux])]
        return own + self.losses


def both(model, x, y):
    out = model(x)
    return nn.functional.mse_loss(out, y) + sum(model.auxiliary())


def auxiliary_only(model, x, y):
    model(x)
    return sum(model.auxiliary())


def first_only(model, x, y):
    model(x)
    return model.auxiliary()[0]


LOSSES = {f.__name__: f for f in (both, auxiliary_only, first_only)}
CASES = list(itertools.product(("attribute", "list", "argument"), (False, True), LOSSES))


def auxiliary_case(rank, n, stage, where, late, name):
    model, opt = sharded(rank, n, stage, make=lambda: Experts(where, late))
    kept = []
    for step in range(3):
        train_sharded(model, opt, [step], loss=LOSSES[name])
        kept.append(sum(b.flat.untyped_storage().nbytes() for b in opt.buckets))
    with torch.no_grad():
        model(rows(9)[0])
    return full_weights(model, opt), kept


auxiliaries = Together(auxiliary_case, [(s, *c) for s in STAGES for c in CASES])


@pytest.mark.parametrize(("where", "late", "name"), CASES)
@pytest.mark.parametrize("stage", STAGES)
def test_auxiliary_losses(stage, where, late, name):
    """A gradient that enters a unit past its output finds the unit's parameters there."""
    by_rank = auxiliaries(2, stage, where, late, name)
    expected = reference(3, make=lambda: Experts(where, late), loss=LOSSES[name])
    assert_equal_to_reference([w for w, _ in by_rank], expected)
    if stage == 3:
        assert all(set(kept) == {0} for _, kept in by_rank)
