"""What users do to a model after it was sharded: copy it, convert it, load into it."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import zero
from helpers import (
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
    train_sharded,
    weights,
)
from zero import comm

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
