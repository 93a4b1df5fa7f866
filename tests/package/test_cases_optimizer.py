"""Parameter groups, schedulers and options reach the optimizer that does the arithmetic."""

import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
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


# --- parameter groups ----------------------------------------------------------------------------


def decay_groups(model):
    """Weights and biases lie in turn in the flat buffer, so the two groups interleave."""
    parameters = list(model.named_parameters())
    return [
        {"params": [p for n, p in parameters if "weight" in n], "weight_decay": 0.5, "lr": 1e-2},
        {"params": [p for n, p in parameters if "bias" in n], "weight_decay": 0.0, "lr": 1e-3},
    ]


def betas_groups(model):
    """The last parameter first, alone and without a list; the others by a generator."""
    return [
        {"params": model[2].bias, "betas": (0.5, 0.9), "amsgrad": True},
        {"params": (p for n, p in model.named_parameters() if n != "2.bias"), "eps": 1e-3},
    ]


def one_list(model):
    """Parameters in a list, not in dicts."""
    return list(model.parameters())


GROUPS = {f.__name__: f for f in (decay_groups, betas_groups, one_list)}


def groups_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, groups=GROUPS[name])
    train_sharded(model, opt)
    mine = {id(p) for group in opt.param_groups for p in group["params"]}
    return full_weights(model, opt), mine == {id(p) for p in model.parameters()}


group_runs = Together(groups_case, list(itertools.product(STAGES, GROUPS)))


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("stage", STAGES)
def test_interleaved_groups(stage, name, n):
    """(case E1)"""
    by_rank = group_runs(n, stage, name)
    assert_equal_to_reference([w for w, _ in by_rank], reference(groups=GROUPS[name]))
    assert all(the_models_own for _, the_models_own in by_rank)


def wrong_groups_case(rank, n, stage):
    texts = []
    for groups in (
        lambda m: [{"params": m[0].parameters()}],
        lambda m: [{"params": m.parameters()}, {"params": m[2].bias}],
        lambda m: [{"params": [*m.parameters(), nn.Parameter(torch.ones(3, 2))]}],
    ):
        try:
            sharded(rank, n, stage, groups=groups)
            texts.append("no error")
        except ValueError as error:
            texts.append(str(error))
    return texts


wrong_groups = Together(wrong_groups_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_groups_that_do_not_fit_the_model(stage):
    for missing, twice, unknown in wrong_groups(2, stage):
        assert missing == "no group holds 2.weight, 2.bias: add them, or freeze them"
        assert twice == "parameter 2.bias is in two groups"
        assert "shape (3, 2) that is no parameter of the model" in unknown


# --- hyperparameters that change -----------------------------------------------------------------

SCHEDULERS = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, [lambda s: 1 / (s + 1), lambda s: 0.5**s]),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, [0.1, 0.02], total_steps=8),
    "warm-up, cosine": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, 1.0, 2), lr_scheduler.CosineAnnealingLR(o, 4)],
        milestones=[2],
    ),
}


def drive(opt, scheduler, step):
    """After an update: move the schedule; at step 3 change the second group by hand."""
    scheduler.step()
    if step == 2:
        opt.param_groups[1]["weight_decay"] = 0.9


def schedule_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, groups=decay_groups)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns when it does not see `step` being called
        scheduler = SCHEDULERS[name](opt)
        equal = True
        for step in range(6):
            train_sharded(model, opt, [step])
            for outer, inner in zip(opt.param_groups, opt.inner.param_groups, strict=True):
                equal &= all(outer[k] == inner[k] for k in outer if k != "params")
            drive(opt, scheduler, step)
    return full_weights(model, opt), equal, scheduler.get_last_lr()


schedules = Together(schedule_case, list(itertools.product(STAGES, SCHEDULERS)))


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("stage", STAGES)
def test_schedulers_and_edits_by_hand_reach_the_update(stage, name):
    """(case E2) Learning rate, betas (one cycle moves them), weight decay; in both groups."""
    model = m0()
    opt = torch.optim.AdamW(decay_groups(model))
    scheduler = SCHEDULERS[name](opt)
    for step in range(6):
        train(model, opt, rows, [step])
        drive(opt, scheduler, step)
    by_rank = schedules(2, stage, name)
    assert_equal_to_reference([w for w, *_ in by_rank], weights(model))
    for _, equal, rates in by_rank:
        assert equal
        assert rates == scheduler.get_last_lr()


def options_case(rank, n, stage):
    results = []
    for options in OPTIONS:
        model, opt = sharded(rank, n, stage, **ADAMW, **options)
        train_sharded(model, opt)
        results.append(full_weights(model, opt))
    return results


OPTIONS = [
    *({"amsgrad": True}, {"maximize": True}, {"foreach": True}, {"betas": (0.5, 0.7), "eps": 1e-3})
]
options_runs = Together(options_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_options_of_the_inner_optimizer(stage):
    by_rank = options_runs(2, stage)
    for i, options in enumerate(OPTIONS):
        expected = reference(**ADAMW, **options)
        assert_equal_to_reference([r[i] for r in by_rank], expected)


class Signs(torch.optim.Optimizer):
    """An optimizer of one's own: moves every weight by lr against the sign of its gradient."""

    elementwise = True

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data -= group["lr"] * p.grad.sign()


class NotSaid(Signs):
    elementwise = False


def own_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, optimizer=Signs, lr=1e-2)
    train_sharded(model, opt)
    try:
        sharded(rank, n, stage, optimizer=NotSaid, lr=1e-2)
        text = "no error"
    except ValueError as error:
        text = str(error)
    return full_weights(model, opt), text


own_runs = Together(own_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_an_optimizer_of_ones_own(stage):
    by_rank = own_runs(2, stage)
    assert_equal_to_reference([w for w, _ in by_rank], reference(optimizer=Signs, lr=1e-2))
    assert all("NotSaid cannot be sharded" in text for _, text in by_rank)
