"""The checks of `zero.adam.adamw_update`."""

import pytest
import torch
from torch import Tensor, nn

from course import training
from course.checks import compare_tensors, exercise, on_ranks, require, same_as
from zero import adam
from zero1_checks import mistakes
from zero1_checks import ranks as on_each_rank

PATH = "zero.adam.adamw_update"


def fp32(*values: float) -> Tensor:
    return torch.tensor(values)


HYPER = {"lr": 0.1, "betas": (0.9, 0.96), "eps": 0.01, "weight_decay": 0.5}
START = fp32(1.0, 1.0, -2.0)
GRADS = [fp32(1.0, -0.5, 0.1), fp32(0.25, 1.0, 0.1), fp32(-1.0, 0.5, -0.3)]


def updated(steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """START and its moments after adamw_update was called with the first gradients."""
    state = START.clone(), torch.zeros(3), torch.zeros(3)
    for step, grad in enumerate(GRADS[:steps], 1):
        adam.adamw_update(state[0], grad.clone(), *state[1:], step, **HYPER)
    return state


@exercise(PATH)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "param"])
def test_numbers(name, steps):
    """The moments and the parameter change, in place, as AdamW wants it"""
    which = ["param", "exp_avg", "exp_avg_sq"].index(name)
    before = [START, torch.zeros(3), torch.zeros(3)][which]
    unchanged = f"{name} is as it was. `{name} = ...` gives the name another tensor; change the "
    unchanged += f"one you were given: {name}.mul_(...), {name}.add_(...), {name}.copy_(...)"
    compare_tensors(
        mistakes.adamw(START, GRADS[:steps], HYPER)[which].float(),
        updated(steps)[which],
        f"{name} after {steps} step{'s' * (steps > 1)}",
        known=[
            same_as(before, "not-in-place", unchanged),
            *mistakes.known(START, GRADS[:steps], HYPER, which),
        ],
    )


@exercise(PATH)
def test_first_use():
    """`step` is the caller's count, not your own: the first update may be number 1 at any time"""
    hyper = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    for count, name in enumerate(("first", "second"), 1):
        param = fp32(1.0)
        adam.adamw_update(param, fp32(1.0), fp32(0.0), fp32(0.0), 1, **hyper)
        wrong, _, _ = mistakes.adamw(fp32(1.0), [fp32(1.0)], hyper, first=2)
        compare_tensors(
            fp32(0.89),
            param,
            f"the {name} parameter that is updated, from 1, with gradient 1 and step=1",
            known=[same_as(wrong.float(), "own-counter", f"that is update number {count}")],
        )


@exercise(PATH)
def test_zero_gradient():
    """A gradient of zero is a gradient: decay, moments and step happen all the same"""
    grads = [GRADS[0], torch.zeros(3)]
    before = mistakes.adamw(START, grads[:1], HYPER)[0]
    shrunk = before * (1 - HYPER["lr"] * HYPER["weight_decay"])
    state = START.clone(), torch.zeros(3), torch.zeros(3)
    for step, grad in enumerate(grads, 1):
        adam.adamw_update(state[0], grad.clone(), *state[1:], step, **HYPER)
    sentence = "no step was made, but the moments still push the weights on"
    compare_tensors(
        mistakes.adamw(START, grads, HYPER)[0].float(),
        state[0],
        "param after a step and one more with a gradient of zero",
        known=[same_as(p.float(), "no-step-for-zero", sentence) for p in (before, shrunk)],
    )


@exercise(PATH)
def test_only_reads():
    """The gradient is only read, and nothing is returned"""
    grad = GRADS[0].clone()
    got = adam.adamw_update(START.clone(), grad, torch.zeros(3), torch.zeros(3), 1, **HYPER)
    text = f"The gradient was {GRADS[0].tolist()}, now it is {grad.tolist()}."
    require(torch.equal(grad, GRADS[0]), text, "gradient-changed")
    require(
        got is None, f"It returns {got!r}; what changes, changes in place.", "returns-something"
    )


@exercise(PATH)
def test_slice():
    """A slice of a tensor gets what it gets as a part of the whole, and nothing else changes"""
    whole, part = [torch.linspace(-1, 1, 8), *torch.zeros(2, 8)], torch.linspace(-1, 1, 8)
    grad = torch.linspace(2, -0.1, 8)
    adam.adamw_update(whole[0], grad.clone(), whole[1], whole[2], 1, **HYPER)
    adam.adamw_update(part[3:6], grad[3:6].clone(), torch.zeros(3), torch.zeros(3), 1, **HYPER)
    outside = torch.ones(8, dtype=torch.bool)
    outside[3:6] = False
    text = "After an update of elements 3 to 5 other elements of the tensor have changed too."
    require(torch.equal(part[outside], torch.linspace(-1, 1, 8)[outside]), text, "outside-changed")
    what = "elements 3 to 5, updated alone, beside the same elements of the whole tensor"
    compare_tensors(whole[0][3:6], part[3:6], what)


@exercise(PATH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_like_torch(dtype):
    """Twenty steps end where torch.optim.AdamW ends"""
    for weight_decay, betas in ((0.0, (0.9, 0.999)), (0.1, (0.5, 0.9)), (0.1, (0.0, 0.99))):
        hyper = {"lr": 1e-2, "betas": betas, "eps": 1e-8, "weight_decay": weight_decay}
        theirs = nn.Parameter(torch.linspace(-1, 1, 37, dtype=dtype))
        ours, moments = theirs.detach().clone(), torch.zeros(2, 37, dtype=dtype)
        torch_optimizer = torch.optim.AdamW([theirs], **hyper)
        for step in range(1, 21):
            theirs.grad = torch.sin(torch.arange(37.0, dtype=dtype) * step)
            adam.adamw_update(ours, theirs.grad.clone(), *moments, step, **hyper)
            torch_optimizer.step()
        compare_tensors(theirs.detach(), ours, f"the parameter after 20 steps with {hyper}")


@exercise(PATH)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_on_ranks(ranks):
    """Each rank runs it on its own slices: together they get what one process gets"""
    runs = on_ranks(on_each_rank.train_with_our_adam, ranks)
    training.compare_weights(training.oracle("adamw", ranks), runs)
