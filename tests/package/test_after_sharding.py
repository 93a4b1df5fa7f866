"""What users do to a model after it was sharded: copy it, convert it, load into it."""

import copy
import functools
import gc
import warnings
import weakref

import pytest
import torch
from torch import nn

import zero
from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
    loss_in,
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
from zero.activations import checkpoint

BY_STAGE = [(stage,) for stage in STAGES]


def refused(attempt) -> str:
    try:
        attempt()
        return "no error"
    except (RuntimeError, ValueError) as error:
        return str(error)


def copy_case(rank, n, stage):
    """A copy is a plain model: used, trained and loaded into without touching the original."""
    model, opt = sharded(rank, n, stage, precision="fp32")
    train_sharded(model, opt, 1)
    text = refused(lambda: copy.deepcopy(model))
    with opt.full_params():
        plain = copy.deepcopy(model)
        state = {name: t.clone() for name, t in model.state_dict().items()}
    copied = weights(plain)
    with comm.record() as log:
        with torch.no_grad():
            plain(rows(0)[0])
        loss_of(plain, *rows(1, rank, n)).backward()
        plain.load_state_dict(state)
    grads = sum(p.grad is not None for p in plain.parameters())
    train_sharded(model, opt, [1])
    return full_weights(model, opt), copied, text, len(log.entries), grads


copies = Together(copy_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_a_copy_of_a_sharded_model_is_a_plain_model(stage):
    by_rank = copies(2, stage)
    assert_equal_to_reference([trained for trained, *_ in by_rank], reference(2))
    assert_equal_to_reference([copied for _, copied, *_ in by_rank], reference(1))
    for *_, text, collectives, grads in by_rank:
        assert (collectives, grads) == (0, 4)
        if stage == 3:
            assert "needs the data of 0.weight" in text and "`with opt.full_params():`" in text
        else:
            assert text == "no error"


def bf16_copy_case(rank, n, stage):
    """Loading into the copy must not round the original's masters."""
    model, opt = sharded(rank, n, stage, precision="bf16")
    with opt.full_params():
        plain = copy.deepcopy(model)
    before = [b.master.clone() for b in opt.buckets]
    plain.load_state_dict(plain.state_dict())
    return all(torch.equal(a, b.master) for a, b in zip(before, opt.buckets, strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_loading_into_a_copy_leaves_the_masters_alone(stage):
    assert on_ranks(bf16_copy_case, 2, stage) == [True, True]


def second_model_case(rank, n, stage):
    """Models that are no longer used, before and after they were trained."""
    refs = []
    for steps in (0, 1):
        model, opt = sharded(rank, n, stage)
        train_sharded(model, opt, steps)
        refs += [weakref.ref(model), weakref.ref(opt)]
        del model, opt
    gc.collect()
    return [ref() is None for ref in refs]


second_models = Together(second_model_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_a_model_that_is_dropped_is_freed(stage):
    """(case D13) With its optimizer."""
    assert second_models(2, stage) == [[True] * 4] * 2


def exchange_case(rank, n, stage):
    """Data that is no view of the bucket any more would never be updated."""
    texts = []

    def converted():
        model, opt = sharded(rank, n, stage)
        with opt.full_params():
            model.double()
        loss_of(model, *(t.double() for t in rows(0, rank, n))).backward()
        opt.step()

    def assigned():
        model, opt = sharded(rank, n, stage)
        with opt.full_params():
            model[2].bias.data = torch.zeros(5)
        train_sharded(model, opt, 1)

    def loaded():
        model, opt = sharded(rank, n, stage)
        with opt.full_params(write_back=True):
            model.load_state_dict(m0(1).state_dict(), assign=True)

    for attempt in (converted, assigned, loaded):
        texts.append(refused(attempt))
    return texts


exchanges = Together(exchange_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_data_exchanged_after_sharding_is_refused_by_name(stage):
    for converted, assigned, loaded in exchanges(2, stage):
        assert "was exchanged after sharding (by model.to(), .double()" in converted
        assert "the data of parameter 2.bias was exchanged after sharding" in assigned
        assert "parameter 0.weight is a new one" in loaded and "without assign=True" in loaded


def max_norm_case(rank, n):
    model = nn.Sequential(nn.Embedding(5, 7, max_norm=0.5), nn.Linear(7, 5))
    return [refused(lambda stage=stage: zero.shard(model, stage, lr=0.1)) for stage in STAGES]


def test_embeddings_that_change_themselves_are_refused():
    for texts in on_ranks(max_norm_case, 2):
        assert all("0 is an embedding with max_norm=0.5" in text for text in texts)


def edited_case(rank, n, stage, precision):
    """Weights are written by hand; the update itself changes nothing. What the model then has, and
    is the master of the weight as it was that was written, but not changed?"""
    model, opt = sharded(rank, n, stage, precision=precision, lr=0.0, weight_decay=0.0)
    before = [b.master.clone() for b in opt.buckets]
    train_sharded(model, opt, 1, loss=loss_in(opt))
    with torch.no_grad():
        model[0].weight.fill_(1.5)
        model[0].bias.clamp_(-9.0, 9.0)
    model[2].load_state_dict({"weight": torch.full((5, 13), 2.5), "bias": torch.full((5,), 3.5)})
    loss_in(opt)(model, *rows(0, rank, n)).backward()
    opt.step()
    opt.zero_grad()
    kept = [
        torch.equal(old[s.offset : s.offset + s.param.numel()], s.param)
        for old, b in zip(before, opt.buckets, strict=True)
        for s in b.slices
        if s.name == "0.bias"
    ]
    return weights(model), all(kept)


EDITED = [(stage, precision) for stage in (0, 1, 2) for precision in ("fp32", "bf16", "fp16")]
edited = Together(edited_case, EDITED)


@pytest.mark.parametrize(("stage", "precision"), EDITED)
def test_weights_written_by_hand_stay(stage, precision):
    """(case F16) Also where a master copy would undo them; the other masters are not rounded."""
    for found, kept in edited(2, stage, precision):
        values = {"0.weight": 1.5, "2.weight": 2.5, "2.bias": 3.5}
        assert all((found[name] == value).all() for name, value in values.items())
        assert kept


def resumed_case(rank, n, root):
    """An edit is saved with the checkpoint; one that comes afterwards is undone by loading it."""
    model, opt = sharded(rank, n, 1, precision="bf16")
    train_sharded(model, opt, 2, loss=loss_in(opt))
    with torch.no_grad():
        model[0].weight.fill_(1.5)
    zero.checkpoint.save(root, model, opt, 2)
    saved = [b.master.clone() for b in opt.buckets]
    with torch.no_grad():
        model[0].weight.fill_(2.5)
        model[0].bias.fill_(2.5)
    zero.checkpoint.load(root, model, opt)
    opt.adopt_edits()
    same = all(torch.equal(a, b.master) for a, b in zip(saved, opt.buckets, strict=True))
    return same, (model[0].weight == 1.5).all().item()


def test_checkpoints_and_weights_written_by_hand(tmp_path):
    assert on_ranks(resumed_case, 2, tmp_path) == [(True, True)] * 2


def refused_case(rank, n, stage):
    """Arguments that the optimizer does not have are refused before the model is changed."""
    model = m0()
    text = refused_type(lambda: zero.shard(model, stage, lrr=0.1))
    opt = zero.shard(model, stage, **ADAMW)
    train_sharded(model, opt)
    return text, full_weights(model, opt)


def refused_type(attempt) -> str:
    try:
        attempt()
        return "no error"
    except TypeError as error:
        return str(error)


refusals = Together(refused_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_after_a_refused_argument_the_model_can_be_sharded(stage):
    by_rank = refusals(2, stage)
    assert all("lrr" in text for text, _ in by_rank)
    assert_equal_to_reference([w for _, w in by_rank], reference())


def compiled_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    called = torch.compile(model, backend="eager")
    train(called, opt, lambda step: rows(step, rank, n))
    return full_weights(model, opt)


@pytest.mark.parametrize("stage", STAGES)
def test_a_compiled_model_trains(stage):
    assert_equal_to_reference(on_ranks(compiled_case, 2, stage), reference())


def autocast_case(rank, n, stage, precision, recompute):
    options = {"units": [nn.Linear]} if stage == 3 else {}
    model, opt = sharded(rank, n, stage, precision=precision, **options)
    if recompute:
        for layer in model[::2]:
            layer.forward = functools.partial(checkpoint, layer.forward)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.autocast("cpu", torch.bfloat16):
            loss_of(model, *rows(0, rank, n)).backward()
    opt.step()
    return {str(w.message)[:40] for w in seen if "ZeRO-3" in str(w.message)}


AUTOCAST = [(2, "fp32", False), (3, "fp32", False), (3, "bf16", False), (3, "fp32", True)]
autocasts = Together(autocast_case, AUTOCAST)


@pytest.mark.parametrize(("stage", "precision", "recompute"), AUTOCAST)
def test_autocast_is_warned_of_where_it_keeps_the_weights(stage, precision, recompute):
    warned = (stage, precision, recompute) == (3, "fp32", False)
    expected = {"autocast keeps 16-bit copies of weights "} if warned else set()
    assert autocasts(2, stage, precision, recompute) == [expected] * 2
