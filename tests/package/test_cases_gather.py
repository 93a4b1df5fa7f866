"""ZeRO-3's hooks in all weathers: evaluation, exceptions, containers.

The other stages run the same cases: the loop is the user's, and must work at every stage.
"""

import dataclasses
import itertools
import warnings
from collections import namedtuple

import pytest
import torch
from torch import nn

from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
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
from zero import comm

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


def gathered_bytes(opt) -> int:
    """Bytes of full parameters that a stage-3 optimizer holds at the moment."""
    buckets = opt.buckets + opt.frozen_buckets
    return sum(b.flat.untyped_storage().nbytes() for b in buckets) if opt.stage == 3 else 0


# --- evaluation ----------------------------------------------------------------------------------


def evaluate(model, how, x):
    """Evaluation in one of the ways that users have."""
    model.eval()
    with {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(
        how, torch.enable_grad
    )():
        out = model(x)
    model.train()
    return out.detach().clone()


def evaluation_case(rank, n, stage, how, when):
    """Evaluate before, between or after the steps; keep the outputs and what stays gathered."""
    model, opt = sharded(rank, n, stage)
    outputs, kept = [], []
    for step in range(4):
        if step in when:
            outputs.append(evaluate(model, how, rows(9)[0]))
            kept.append(gathered_bytes(opt))
        train_sharded(model, opt, [step])
        if step in when:
            outputs.append(evaluate(model, how, rows(9)[0]))
            outputs.append(evaluate(model, how, rows(8)[0]))
            kept.append(gathered_bytes(opt))
    return full_weights(model, opt), outputs, kept


EVALUATIONS = [(how, when) for how in ("no_grad", "inference", "grad") for when in ((0,), (1, 2))]
evaluations = Together(evaluation_case, [(s, *e) for s in STAGES for e in EVALUATIONS])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("how", "when"), EVALUATIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_evaluation_between_steps(stage, how, when, n):
    """(case D2)"""
    model, wanted = m0(), []
    opt = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(4):
        if step in when:
            wanted.append(model(rows(9)[0]).detach())
        train(model, opt, rows, [step])
        if step in when:
            wanted += [model(rows(9)[0]).detach(), model(rows(8)[0]).detach()]
    by_rank = evaluations(n, stage, how, when)
    assert_equal_to_reference([w for w, *_ in by_rank], weights(model))
    for _, outputs, kept in by_rank:
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(outputs, wanted, strict=True))
        assert set(kept) == {0}


# --- exceptions ----------------------------------------------------------------------------------


class Fragile(nn.Module):
    """A layer that fails when its flag is set: in forward, or when its gradient arrives."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.fails = layer, ""

    def forward(self, x):
        if self.fails == "forward":
            raise ValueError("no memory")
        out = self.layer(x)
        if self.fails == "backward" and out.requires_grad:
            out.register_hook(self.fail)
        return out

    def fail(self, grad):
        raise ValueError("no memory")


def fragile() -> nn.Module:
    layers = list(m0())
    torch.manual_seed(1)
    extra = nn.Linear(13, 13)
    return nn.Sequential(layers[0], nn.Tanh(), Fragile(extra), nn.Tanh(), layers[2])


def exception_case(rank, n, stage, moment):
    """All ranks fail at step 2, catch it, and repeat the batch."""
    model, opt = sharded(rank, n, stage, make=fragile)
    train_sharded(model, opt, 2)
    model[2].fails, text = moment, "no error"
    try:
        loss_of(model, *rows(2, rank, n)).backward()
    except ValueError as error:
        text = str(error)
    model[2].fails = ""
    kept = gathered_bytes(opt)
    train_sharded(model, opt, [2, 3])
    return full_weights(model, opt), text, kept, gathered_bytes(opt)


EXCEPTIONS = list(itertools.product(STAGES, ("forward", "backward")))
exceptions = Together(exception_case, EXCEPTIONS)


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "moment"), EXCEPTIONS)
def test_a_batch_is_repeated_after_an_exception(stage, moment, n):
    """(case D4) Nothing half-done enters the step; nothing stays gathered."""
    by_rank = exceptions(n, stage, moment)
    if stage < 2 and moment == "backward":
        # As in plain PyTorch: what backward had made before it failed stays in `.grad`.
        model = fragile()
        opt = torch.optim.AdamW(model.parameters(), **ADAMW)
        train(model, opt, rows, 2)
        wanted = interrupted(model, opt)
    else:
        wanted = reference(make=fragile)
    assert_equal_to_reference([w for w, *_ in by_rank], wanted)
    for _, text, kept, after in by_rank:
        assert text == "no memory"
        assert after == 0
        if moment == "forward":
            assert kept == 0


def interrupted(model, opt):
    model[2].fails = "backward"
    try:
        loss_of(model, *rows(2)).backward()
    except ValueError:
        model[2].fails = ""
    train(model, opt, rows, [2, 3])
    return weights(model)


def lonely_case(rank, n, stage, moment):
    """Rank 0 alone fails and repeats; the others do not know."""
    model, opt = sharded(rank, n, stage, make=fragile)
    train_sharded(model, opt, 2)
    if rank == 0:
        model[2].fails = moment
        try:
            loss_of(model, *rows(2, rank, n)).backward()
        except ValueError:
            model[2].fails = ""
    try:
        train_sharded(model, opt, [2, 3])
    except (comm.CommError, RuntimeError) as error:
        return str(error)
    return "no error"


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
@pytest.mark.parametrize("moment", ["forward", "backward"])
def test_one_rank_that_repeats_alone_is_an_error_on_all(moment):
    """(case D4) Its collectives no longer match; the text names what each rank was at."""
    for text in on_ranks(lonely_case, 2, 3, moment):
        assert "rank 0: " in text and "rank 1: " in text, text
        assert "parameters of" in text or "gradients of" in text


# --- what modules pass to each other -------------------------------------------------------------

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Record:
    h: torch.Tensor
    nothing: None = None


class Box:
    """A container that no library knows; it points at itself, as trees with parents do."""

    def __init__(self, h):
        self.h, self.me = h, self


class Slotted:
    __slots__ = ("h",)

    def __init__(self, h):
        self.h = h


PACKERS = {
    "object": (Box, lambda x: x.h),
    "object in a list": (lambda h: [Slotted(h)], lambda x: x[0].h),
    "dict": (lambda h: {"h": h, "nothing": None}, lambda x: x["h"]),
    "named tuple": (lambda h: Pair(3, h), lambda x: x.second),
    "dataclass": (lambda h: Record(h), lambda x: x.h),
    "nested": (lambda h: [[(h,)], 7], lambda x: x[0][0][0]),
    "number beside": (lambda h: (h, 5), lambda x: x[0]),
    "keyword": (lambda h: {"h": h}, lambda x: x["h"]),
}


class Packing(nn.Module):
    """A layer that returns its output inside something."""

    def __init__(self, inputs, outputs, name):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        self.pack, self.unpack = PACKERS[name]

    def forward(self, x, scale=None):
        h = self.unpack(x) if not isinstance(x, torch.Tensor) else x
        return self.pack(torch.tanh(self.layer(h)) * (1.0 if scale is None else scale))


class Packed(nn.Module):
    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        sizes = [(7, 13), (13, 13), (13, 5)]
        self.layers = nn.ModuleList([Packing(i, o, name) for i, o in sizes])
        self.by_keyword = name == "keyword"

    def forward(self, x):
        for layer in self.layers:
            x = layer(x=x, scale=torch.ones(1)) if self.by_keyword else layer(x)
        return self.layers[-1].unpack(x)


def packed_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, make=lambda: Packed(name))
    kept = []
    for step in range(4):
        loss_of(model, *rows(step, rank, n)).backward()
        kept.append(gathered_bytes(opt))
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt), kept


packed = Together(packed_case, list(itertools.product(STAGES, PACKERS)))


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("stage", STAGES)
def test_outputs_inside_containers(stage, name):
    """(case D8)"""
    by_rank = packed(2, stage, name)
    assert_equal_to_reference([w for w, _ in by_rank], reference(make=lambda: Packed(name)))
    assert all(set(kept) == {0} for _, kept in by_rank)


def opaque_case(rank, n):
    PACKERS["iterator"] = (lambda h: (h, iter([h])), lambda x: x[0])
    model, _ = sharded(rank, n, 3, make=lambda: Packed("iterator"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            model(rows(step, rank, n)[0])
    return [str(w.message) for w in caught if "not seen" in str(w.message)]


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_an_object_that_cannot_be_looked_into_is_named_once():
    """(case D8) On rank 0 only."""
    first, second = on_ranks(opaque_case, 2)
    assert len(first) == 1 and second == []
    assert "tensors inside a list_iterator are not seen" in first[0]
