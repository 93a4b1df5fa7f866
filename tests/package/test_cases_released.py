"""ZeRO-3: what may be done with a parameter that is not there, and what is refused by name."""

import itertools

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
    m0,
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
    weights,
)
from zero import comm

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


def gathered_bytes(opt) -> int:
    """Bytes of full parameters that a stage-3 optimizer holds at the moment."""
    buckets = opt.buckets + opt.frozen_buckets
    return sum(b.flat.untyped_storage().nbytes() for b in buckets) if opt.stage == 3 else 0


# --- weights outside of their module -------------------------------------------------------------


class Outside(nn.Module):
    """Uses a weight of one module in another place."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(7, 7), nn.Linear(7, 5)

    def forward(self, x):
        return self.b(torch.tanh(nn.functional.linear(self.a(x), self.a.weight)))


def outside_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, make=Outside)
    try:
        train_sharded(model, opt)
    except RuntimeError as error:
        return None, str(error)
    return full_weights(model, opt), ""


outside = Together(outside_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_a_weight_used_outside_its_module(stage):
    """(case D10) Never a silent wrong number: at stage 3 it is refused, by name."""
    by_rank = outside(2, stage)
    if stage < 3:
        assert_equal_to_reference([w for w, _ in by_rank], reference(make=Outside))
    else:
        assert all("a.weight, which ZeRO-3 has released" in text for _, text in by_rank)


# --- used on some ranks only ---------------------------------------------------------------------


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.extra = m0(), nn.Linear(13, 13)

    def forward(self, x, branch):
        h = self.body[1](self.body[0](x))
        return self.body[2](self.extra(h) if branch else h)


def branch_case(rank, n):
    model, opt = sharded(rank, n, 3, make=Branch)
    try:
        for step in range(4):
            x, y = rows(step, rank, n)
            nn.functional.mse_loss(model(x, rank == 0), y).backward()
            opt.step()
            opt.zero_grad()
        return "no error"
    except comm.CommError as error:
        return str(error)


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
@pytest.mark.parametrize("n", WORLDS)
def test_a_module_that_some_ranks_skip_is_named(n):
    """(case B3) Gathering needs all ranks. The text says which rank wanted which module."""
    for text in on_ranks(branch_case, n):
        lines = text.splitlines()
        assert lines[1].startswith("  rank 0: all_gather(parameters of extra, ")
        assert all(f"  rank {r}: all_gather(parameters of body.2, " in text for r in range(1, n))


# --- looking and editing -------------------------------------------------------------------------


def edit_case(rank, n, stage, precision):
    model, opt = sharded(rank, n, stage, precision=precision)
    dtype = next(model.parameters()).dtype
    loss = lambda: model(rows(0, rank, n)[0].to(dtype)).float().pow(2).mean()  # noqa: E731
    loss().backward()
    opt.step()
    opt.zero_grad()
    with opt.full_params(write_back=True), torch.no_grad():
        model[2].weight.fill_(1.0 + rank)  # rank 0's edit is the one that counts
    edited = full_weights(model, opt)
    opt.param_groups[0]["lr"] = 0.0
    loss().backward()
    opt.step()  # the master must not bring the old values back
    opt.zero_grad()
    kept = full_weights(model, opt)
    texts = []
    for edit in (lambda w: w.copy_(w.flip(0)), lambda w: w.neg_(), lambda w: w.fill_(2.0)):
        try:
            with opt.full_params(), torch.no_grad():
                edit(model[0].weight)
            texts.append("no error")
        except RuntimeError as error:
            texts.append(str(error))
    with opt.full_params():
        counts = sum(p.numel() for p in model.parameters())
    return edited["2.weight"], kept["2.weight"], texts, counts, gathered_bytes(opt)


edits = Together(edit_case, list(itertools.product(STAGES, ("fp32", "bf16"))))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", STAGES)
def test_edits_are_kept_or_refused(stage, precision):
    """(case D12) With `write_back` rank 0's, masters included; without, an error on all ranks."""
    for edited, kept, texts, counts, left in edits(2, stage, precision):
        assert torch.equal(edited, torch.ones_like(edited))
        assert torch.equal(kept, torch.ones_like(kept))
        assert all("without write_back=True" in text for text in texts), texts
        assert (counts, left) == (174, 0)


def released_case(rank, n):
    model, opt = sharded(rank, n, 3)
    numel = sum(p.numel() for p in model.parameters())
    shapes = [tuple(p.shape) for p in model.parameters()]
    texts = []
    for use in (
        lambda: nn.init.zeros_(model[2].weight),
        lambda: model[0].bias + 1,
        lambda: model[0].weight.sum().item(),
        model.state_dict,
        lambda: model[0].weight.data,
        lambda: model[0].weight.tolist(),
    ):
        try:
            use()
            texts.append("no error")
        except RuntimeError as error:
            texts.append(str(error))
    shown = repr(model[2].weight)
    train_sharded(model, opt)
    return numel, shapes, texts, shown, full_weights(model, opt)


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_released_parameters_have_shapes_and_no_data():
    """(case D14) Counts and shapes are true; what would read freed memory is refused by name."""
    by_rank = on_ranks(released_case, 2)
    for numel, shapes, texts, shown, _ in by_rank:
        assert numel == 174
        assert shapes == [(13, 7), (13,), (5, 13), (5,)]
        names = ["2.weight", "0.bias", "0.weight", "0.weight", "0.weight", "0.weight"]
        for text, name in zip(texts, names, strict=True):
            assert f"needs the data of {name}, which ZeRO-3 has released" in text
        assert "2.weight" in shown and "(5, 13)" in shown
    assert_equal_to_reference([r[-1] for r in by_rank], reference())


# --- the shape of the model ----------------------------------------------------------------------


class Block(nn.Module):
    """A layer with a frozen normalization."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(13).requires_grad_(False)
        self.layer = nn.Linear(13, 13)

    def forward(self, x):
        return x + torch.tanh(self.layer(self.norm(x)))


class Blocks(nn.Module):
    """Two blocks between two layers."""

    def __init__(self):
        super().__init__()
        self.start, self.end = nn.Linear(7, 13), nn.Linear(13, 5)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.start(x)
        for block in self.blocks:
            x = block(x)
        return self.end(x)


def meta_case(rank, n, given):
    with torch.device("meta"):
        model = Blocks()
    options = {"init": fill} if given else {}
    opt = zero.shard(model, 3, **ADAMW, **options)
    start = full_weights(model, opt)
    for p in model.parameters():
        assert p.device.type == "cpu"
    train_sharded(model, opt)
    return start, full_weights(model, opt)


def fill(module):
    """Start values that depend on nothing but the shape."""
    for p in module.parameters(recurse=False):
        p.copy_(torch.linspace(-0.3, 0.3, p.numel()).view(p.shape))


def filled():
    model = Blocks()
    with torch.no_grad():
        model.apply(fill)
    return model


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
@pytest.mark.parametrize("given", [True, False])
def test_a_model_on_the_meta_device(given):
    """Its values come from `init`, or from the modules themselves; then it trains as any other."""
    by_rank = on_ranks(meta_case, 2, given)
    assert_same_on_all_ranks([start for start, _ in by_rank])
    if given:
        assert_equal_to_reference([start for start, _ in by_rank], weights(filled()), atol=1e-12)
        assert_equal_to_reference([trained for _, trained in by_rank], reference(make=filled))
    else:
        start, trained = by_rank[0]
        assert torch.equal(start["blocks.1.norm.weight"], torch.ones(13))
        assert 0 < start["end.weight"].abs().max() <= 13**-0.5
        assert not torch.equal(start["end.weight"], trained["end.weight"])


def wrong_units_case(rank, n):
    texts = []
    for attempt in (
        lambda: sharded(rank, n, 3, units=[nn.Conv2d]),
        lambda: zero.shard(list(m0().parameters()), 3, lr=0.1),
    ):
        try:
            attempt()
            texts.append("no error")
        except ValueError as error:
            texts.append(str(error))
    return texts


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_what_cannot_be_cut_into_units():
    for units, loose in on_ranks(wrong_units_case, 2):
        assert "units=[Conv2d]: the model contains no module of these classes" in units
        assert "give it the model, not its parameters" in loose
