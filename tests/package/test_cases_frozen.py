"""Frozen parameters and recomputed blocks: hooks that would wait for what never comes."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as torch_checkpoint

from helpers import (
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
)
from zero import activations, comm

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


def gathered_bytes(opt) -> int:
    """Bytes of full parameters that a stage-3 optimizer holds at the moment."""
    buckets = opt.buckets + opt.frozen_buckets
    return sum(b.flat.untyped_storage().nbytes() for b in buckets) if opt.stage == 3 else 0


# --- recomputation -------------------------------------------------------------------------------


class Block(nn.Module):
    """A layer with a frozen normalization."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(13).requires_grad_(False)
        self.layer = nn.Linear(13, 13)

    def forward(self, x):
        return x + torch.tanh(self.layer(self.norm(x)))


RECOMPUTE = {
    "none": lambda block, x: block(x),
    "reentrant": lambda block, x: torch_checkpoint.checkpoint(block, x, use_reentrant=True),
    "not reentrant": lambda block, x: torch_checkpoint.checkpoint(block, x, use_reentrant=False),
    "zero": lambda block, x: activations.checkpoint(block, x),
}


class Blocks(nn.Module):
    """M0's ends, three blocks between them."""

    def __init__(self, how="none"):
        super().__init__()
        torch.manual_seed(0)
        self.start, self.end = nn.Linear(7, 13), nn.Linear(13, 5)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.run = RECOMPUTE[how]

    def forward(self, x):
        x = self.start(x)
        for block in self.blocks:
            x = self.run(block, x)
        return self.end(x)


def recompute_case(rank, n, stage, how):
    model, opt = sharded(rank, n, stage, make=lambda: Blocks(how))
    kept, gathers = [], []
    for step in range(4):
        with comm.record() as log:
            loss_of(model, *rows(step, rank, n)).backward()
        kept.append(gathered_bytes(opt))
        gathers.append([e.name for e in log.entries if e.op == "all_gather"])
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt), kept, gathers


RECOMPUTES = list(itertools.product(STAGES, RECOMPUTE))
recomputes = Together(recompute_case, RECOMPUTES)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "how"), RECOMPUTES)
def test_recomputed_blocks(stage, how, n):
    """(case D6) Right, nothing stays gathered, and recomputing costs no gather more."""
    by_rank = recomputes(n, stage, how)
    assert_equal_to_reference([w for w, *_ in by_rank], reference(make=Blocks))
    plain = recomputes(n, stage, "none")
    for (trained, kept, gathers), (wanted, _, usual) in zip(by_rank, plain, strict=True):
        assert_same_on_all_ranks([trained, wanted])
        assert set(kept) == {0}
        if stage == 3:
            # Once in forward, once in backward; a unit has a bucket for what is frozen, too.
            for names in gathers:
                units = [name.split(",")[0] for name in names]  # the step stands behind it
                assert all(units.count(f"parameters of blocks.{i}") == 4 for i in range(3))
            assert sorted(gathers[2]) == sorted(usual[2])
        else:
            assert not any(gathers)


# --- frozen parameters ---------------------------------------------------------------------------


def frozen_bias() -> nn.Module:
    """A frozen and a trained parameter in one unit."""
    model = m0()
    model[0].bias.requires_grad_(False)
    return model


def frozen_first() -> nn.Module:
    """A whole unit frozen: the first, so that nothing flows back into it."""
    model = m0()
    model[0].requires_grad_(False)
    return model


def frozen_middle() -> nn.Module:
    """A frozen unit between trained ones: gradients flow through it, none stay."""
    layers = list(m0())
    torch.manual_seed(1)
    middle = nn.Linear(13, 13).requires_grad_(False)
    return nn.Sequential(layers[0], nn.Tanh(), middle, nn.Tanh(), layers[2])


class UnusedInput(nn.Module):
    """A unit with a second input that needs a gradient and is not used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(7, 13), nn.Linear(7, 13), TwoInputs()

    def forward(self, x):
        return self.c(torch.tanh(self.a(x)), self.b(x).detach().requires_grad_())


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(13, 5)

    def forward(self, used, unused):
        return self.layer(used)


class PartlyUsed(nn.Module):
    """Of two layers in a container that has no forward of its own, one is not used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"on": nn.Linear(7, 7), "off": nn.Linear(7, 7)})]
        )
        self.end = nn.Linear(7, 5)

    def forward(self, x):
        return self.end(torch.tanh(self.layers[0]["on"](x)))


class Loose(nn.Module):
    """Parameters in containers without a forward, and in the model itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.scales = nn.ParameterList([torch.ones(7), torch.ones(5)])
        self.shifts = nn.ParameterDict({"start": torch.zeros(7), "off": torch.ones(3)})
        self.layers = nn.ModuleDict({"only": nn.ModuleList([nn.Linear(7, 5)])})
        self.gain = nn.Parameter(torch.ones(5))

    def forward(self, x):
        h = x * self.scales[0] + self.shifts["start"]
        return self.layers["only"][0](h) * self.scales[1] * self.gain


class TiedAcross(nn.Module):
    """The first and the last unit share a weight; the one between them is frozen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.e, self.m, self.h = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        self.m.requires_grad_(False)
        self.h.weight = self.e.weight

    def forward(self, x):
        return self.h(torch.tanh(self.m(torch.tanh(self.e(x)))))[:, :5]


MODELS = {
    m.__name__: m
    for m in (
        *(frozen_bias, frozen_first, frozen_middle),
        *(UnusedInput, PartlyUsed, Loose, TiedAcross),
    )
}


def frozen_case(rank, n, stage, name, precision):
    model, opt = sharded(rank, n, stage, make=MODELS[name], precision=precision)
    dtype = next(model.parameters()).dtype
    start, kept = full_weights(model, opt), []
    for step in range(4):
        x, y = rows(step, rank, n)
        nn.functional.mse_loss(model(x.to(dtype)).float(), y).backward()
        kept.append(gathered_bytes(opt))
        opt.step()
        opt.zero_grad()
    names = {name for name, p in model.named_parameters() if not p.requires_grad}
    states = {s.name for s in opt.slices} & names
    return start, full_weights(model, opt), kept, states, names


FROZEN = list(itertools.product(STAGES, MODELS, ("fp32", "bf16")))
frozen_runs = Together(frozen_case, FROZEN)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "name", "precision"), FROZEN)
def test_frozen_and_unused_parameters(stage, name, precision, n):
    """(cases D9, D17) The rest trains; frozen ones keep their bits, have no state, are released."""
    by_rank = frozen_runs(n, stage, name, precision)
    trained = [{k: w.float() for k, w in r[1].items()} for r in by_rank]
    expected = reference(make=MODELS[name])
    assert_equal_to_reference(trained, expected, atol=1e-6 if precision == "fp32" else 4e-2)
    for start, after, kept, states, names in by_rank:
        assert all(torch.equal(start[k], after[k]) for k in names)
        assert not states
        assert set(kept) == {0}
