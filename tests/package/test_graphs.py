"""More than one pass through a graph: retained graphs, `autograd.grad`, gradients of gradients."""

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
    full_weights,
    loss_of,
    m0,
    on_ranks,
    rows,
    sharded,
    weights,
)


def deep() -> nn.Sequential:
    layers = list(m0())
    torch.manual_seed(1)
    return nn.Sequential(*layers[:2], nn.Linear(13, 13), nn.Tanh(), layers[2])


# --- ways to make gradients: each is a plain PyTorch program, which must give the same ------------


def twice(model, x, y):
    """The same loss twice."""
    loss = loss_of(model, x, y)
    loss.backward(retain_graph=True)
    loss.backward()


def two_heads(model, x, y):
    """Two losses that share the first layers, one after the other."""
    h = model[:3](x)
    first, second = h.pow(2).mean(), nn.functional.mse_loss(model[3:](h), y)
    first.backward(retain_graph=True)
    second.backward()


def interleaved(model, x, y):
    """Two graphs alive at once; the older one is used last, and twice."""
    old, new = loss_of(model, x, y), loss_of(model, 2 * x, y)
    new.backward()
    old.backward(retain_graph=True)
    old.backward()


def saliency(model, x, y):
    """The gradient of the input, looked at before the training pass; it weighs the rows."""
    x = x.clone().requires_grad_()
    (seen,) = torch.autograd.grad(loss_of(model, x, y), x)
    nn.functional.mse_loss(model(x.detach() + seen), y).backward()


def only_inputs(model, x, y):
    """A pass into the input alone leaves the parameters' gradients as they are."""
    x = x.clone().requires_grad_()
    loss_of(model, x, y).backward(inputs=[x])
    nn.functional.mse_loss(model(x.detach() + x.grad), y).backward()


def of_a_part(model, x, y):
    """A pass that ends in the middle of the model."""
    h = model[:2](x)
    loss = nn.functional.mse_loss(model[2:](h), y)
    (seen,) = torch.autograd.grad(loss, h, retain_graph=True)
    (loss * (1 + seen.detach().abs().sum())).backward()


def penalty(model, x, y):
    """A penalty on the gradient of the input: a gradient of a gradient."""
    x = x.clone().requires_grad_()
    loss = loss_of(model, x, y)
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + grad.pow(2).sum()).backward()


WAYS = {f.__name__: f for f in (twice, two_heads, interleaved, saliency, only_inputs, of_a_part)}


def plain(way):
    """One process: the mean over the gradients of each rank's rows."""
    model = deep()
    opt = torch.optim.AdamW(model.parameters(), **ADAMW)
    for step in range(3):
        for rank in range(2):
            way(model, *rows(step, rank, 2))
        for p in model.parameters():
            p.grad /= 2
        opt.step()
        opt.zero_grad()
    return weights(model)


def left(opt) -> int:
    """Bytes of full parameters that stage 3 keeps."""
    return sum(b.flat.untyped_storage().nbytes() for b in opt.buckets) if opt.stage == 3 else 0


def way_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, make=deep)
    kept = []
    for step in range(3):
        WAYS[name](model, *rows(step, rank, n))
        kept.append(left(opt))
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt), kept


ways = Together(way_case, itertools.product(STAGES, WAYS))


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("stage", STAGES)
def test_several_passes_through_graphs(stage, name):
    by_rank = ways(2, stage, name)
    assert_equal_to_reference([w for w, _ in by_rank], plain(WAYS[name]))
    assert all(set(kept) == {0} for _, kept in by_rank)


def penalty_case(rank, n, stage):
    """At stage 3 with whole parameters; what it says without them; and ordinary steps after it."""
    model, opt = sharded(rank, n, stage, make=deep)
    texts = []
    for step in range(3):
        if step == 1:
            try:
                penalty(model, *rows(step, rank, n))
            except RuntimeError as error:
                texts.append(str(error))
            opt.zero_grad()
        with opt.full_params():
            penalty(model, *rows(step, rank, n))
        opt.step()
        opt.zero_grad()
    return full_weights(model, opt), texts, left(opt)


penalties = Together(penalty_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_of_gradients(stage):
    """Stage 3 would need the released parameters once more, and says what to do."""
    by_rank = penalties(2, stage)
    assert_equal_to_reference([w for w, *_ in by_rank], plain(penalty))
    for _, texts, kept in by_rank:
        assert kept == 0
        assert len(texts) == (stage == 3)
        assert all("create_graph=True reached 4: " in text for text in texts)
        assert all("inside `with opt.full_params():`" in text for text in texts)


def gradients_of_parameters_case(rank, n, stage):
    """`autograd.grad` gives this rank's own gradients, and leaves the optimizer's alone."""
    model, opt = sharded(rank, n, stage, make=deep)
    x, y = rows(0, rank, n)
    own = deep()
    wanted = torch.autograd.grad(loss_of(own, x, y), list(own.parameters()))
    text = ""
    try:
        loss = loss_of(model, x, y)
        got = torch.autograd.grad(loss, list(model.parameters()))
    except RuntimeError as error:
        text = str(error)
        with opt.full_params():
            got = torch.autograd.grad(loss, list(model.parameters()))
    before = full_weights(model, opt)
    opt.step()
    after = full_weights(model, opt)
    unmoved = all(torch.equal(before[name], after[name]) for name in before)
    return all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True)), unmoved, text


gradients_of_parameters = Together(gradients_of_parameters_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_gradients_asked_for_by_parameter(stage):
    for same, unmoved, text in gradients_of_parameters(2, stage):
        assert same and unmoved
        assert ("needs the data of 0.weight" in text) == (stage == 3)


def lonely_case(rank, n):
    """One rank looks at a gradient of its own: the others have no such pass."""
    model, _ = sharded(rank, n, 3, make=deep)
    if rank == 0:
        saliency(model, *rows(0, rank, n))
    loss_of(model, *rows(0, rank, n)).backward()


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_a_pass_on_one_rank_only_is_an_error_on_all():
    with pytest.raises(zero.RankError, match=r"parameters of \d, step 1") as error:
        on_ranks(lonely_case, 2, timeout=20)
    assert error.value.kind != "timeout"
