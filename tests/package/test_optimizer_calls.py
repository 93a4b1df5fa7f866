"""The calls of a torch optimizer beside `step`: all of them work, or say why they cannot."""

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
    loss_in,
    loss_of,
    m0,
    reference,
    rows,
    sharded,
    train,
    train_sharded,
    weights,
)

WORLDS = (2, 4)
BY_STAGE = [(stage,) for stage in STAGES]


# --- the other calls of an optimizer -------------------------------------------------------------


def closure_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    called = []
    opt.register_step_pre_hook(lambda *_: called.append("before"))
    opt.register_step_post_hook(lambda *_: called.append("after"))
    losses = []
    for step in range(4):

        def closure(step=step):
            opt.zero_grad()
            loss = loss_of(model, *rows(step, rank, n))
            loss.backward()
            return loss

        losses.append(opt.step(closure).item())
    return full_weights(model, opt), losses, called


closures = Together(closure_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_closures_and_hooks(stage):
    by_rank = closures(2, stage)
    assert_equal_to_reference([w for w, *_ in by_rank], reference())
    model = m0()
    expected = train(model, torch.optim.AdamW(model.parameters(), **ADAMW), rows)
    mean = [sum(losses) / 2 for losses in zip(*(losses for _, losses, _ in by_rank))]
    assert mean == pytest.approx(expected, abs=1e-6)
    assert all(called == ["before", "after"] * 4 for *_, called in by_rank)


def zero_grad_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    for step in range(4):
        x, y = rows(step, rank, n)
        out = model(x) if step == 0 else model[0](x)
        (out.sum() if step else nn.functional.mse_loss(out, y)).backward()
        opt.step()
        opt.zero_grad(set_to_none=False)
    return full_weights(model, opt)


zero_grads = Together(zero_grad_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_zero_gradients_are_not_missing_ones(stage):
    """As in torch: with `set_to_none=False` the second layer is decayed where it is not used."""
    model = m0()
    opt = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(4):
        x, y = rows(step)
        out = model(x) if step == 0 else model[0](x) * 2  # a sum over 8 rows, not a mean of two
        (out.sum() / 4 if step else nn.functional.mse_loss(out, y)).backward()
        opt.step()
        opt.zero_grad(set_to_none=False)
    assert_equal_to_reference(zero_grads(2, stage), weights(model))


def refused_case(rank, n, stage):
    """On rank 0 only: nothing may wait there for the others."""
    model, opt = sharded(rank, n, stage)
    texts = []
    train_sharded(model, opt, 2)
    if rank == 0:
        for call in (
            opt.state_dict,
            lambda: opt.load_state_dict({}),
            lambda: opt.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
        ):
            try:
                call()
                texts.append("no error")
            except RuntimeError as error:
                texts.append(str(error))
    train_sharded(model, opt, [2, 3])
    return full_weights(model, opt), texts, isinstance(opt, torch.optim.Optimizer), repr(opt)


refused = Together(refused_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_what_one_rank_alone_cannot_do(stage):
    """(case E6) `state_dict` would be a part that looks like a whole."""
    by_rank = refused(2, stage)
    assert_equal_to_reference([r[0] for r in by_rank], reference())
    save, load, add = by_rank[0][1]
    assert f"stage {stage}" in save and "zero.checkpoint.save" in save
    assert "zero.checkpoint.load" in load
    assert "shard again" in add
    for _, _, is_optimizer, text in by_rank:
        assert is_optimizer
        assert "lr: 0.01" in text and "weight_decay: 0.1" in text


def toggled_case(rank, n, stage):
    texts = []
    for name, flag in (("0.weight", False), ("2.bias", True)):
        model = m0()
        model[2].bias.requires_grad_(False)
        opt = zero.shard(model, stage, **ADAMW)
        model.get_parameter(name).requires_grad_(flag)
        loss_of(model, *rows(0, rank, n)).backward()
        try:
            opt.step()
            texts.append("no error")
        except RuntimeError as error:
            texts.append(str(error))
        opt.zero_grad()
    return texts


toggled = Together(toggled_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_freezing_after_sharding_is_refused_by_name(stage):
    for texts in toggled(2, stage):
        for text, name in zip(texts, ("0.weight", "2.bias"), strict=True):
            assert f"requires_grad of {name} was changed after sharding" in text


# --- where the states are ------------------------------------------------------------------------


def offload_case(rank, n, stage, place):
    model, opt = sharded(rank, n, stage, **ADAMW, offload_optimizer=place)
    train_sharded(model, opt, 20)
    return full_weights(model, opt)


PLACES = (None, "cpu", "disk")
offloads = Together(offload_case, list(itertools.product(STAGES, PLACES)))


@pytest.mark.parametrize("place", ["cpu", "disk"])
@pytest.mark.parametrize("stage", STAGES)
def test_offloaded_states_change_nothing(stage, place):
    """(case E9) After 20 steps with weight decay: the bits of the run without offload."""
    by_rank = offloads(2, stage, place)
    for mine, wanted in zip(by_rank, offloads(2, stage, None), strict=True):
        assert_same_on_all_ranks([mine, wanted])
    assert_equal_to_reference(by_rank, reference(20))


# --- gradients that do not come from backward ----------------------------------------------------


def by_hand_case(rank, n, stage):
    model, opt = sharded(rank, n, stage)
    try:
        for step in range(4):
            with opt.full_params():
                loss = loss_of(model, *rows(step, rank, n))
                grads = torch.autograd.grad(loss, list(model.parameters()))
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad
            opt.step()
            opt.zero_grad()
        text = "no error"
    except RuntimeError as error:
        text = str(error)
    return full_weights(model, opt), text


by_hand = Together(by_hand_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_set_by_hand(stage):
    """Stages 2 and 3 take them out of backward; there, they would be lost, so they are refused."""
    by_rank = by_hand(2, stage)
    if stage < 2:
        assert_equal_to_reference([w for w, _ in by_rank], reference())
    for _, text in by_rank:
        refusal = "the gradient of 0.weight was set by hand"
        assert text == "no error" if stage < 2 else text.startswith(refusal)


def twice_case(rank, n, stage, precision):
    """`step` is called again for the same gradients: the weights after it, or the error."""
    model, opt = sharded(rank, n, stage, precision=precision, optimizer=torch.optim.SGD, lr=1.0)
    loss_in(opt)(model, *rows(0, rank, n)).backward()
    before = full_weights(model, opt)["0.bias"]
    opt.step()
    once = full_weights(model, opt)["0.bias"]
    try:
        opt.step()
    except RuntimeError as error:
        return str(error), False
    moved = full_weights(model, opt)["0.bias"]
    return "", torch.allclose(moved - once, once - before, rtol=0.1, atol=1e-2)


TWICE = [(stage, precision) for stage in STAGES for precision in ("fp32", "bf16")]
twice = Together(twice_case, TWICE)


@pytest.mark.parametrize(("stage", "precision"), TWICE)
def test_a_second_step_without_new_gradients(stage, precision):
    """As in torch the same gradients count again; where they are dropped, it says so."""
    for text, moved in twice(2, stage, precision):
        if precision == "bf16" and stage < 2:
            assert "step() has used these gradients" in text and "opt.zero_grad()" in text
        else:
            assert text == "" and moved
