"""Checks of `unflatten_into`: the module's parameters become views of the flat tensor."""

import pytest
import torch
from torch import nn

from course.checks import compare_tensors, exercise, fail, require, same_as
from zero.flat import unflatten_into


def small() -> nn.Sequential:
    """Parameters of shape [2, 3], [2], [1, 2] and [1]: 11 elements."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))


def pieces(flat: torch.Tensor, module: nn.Module) -> list[torch.Tensor]:
    """What each parameter should be, in registration order."""
    parameters = list(module.parameters())
    parts = flat[: sum(p.numel() for p in parameters)].split([p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters)]


@exercise("zero.flat.unflatten_into")
def test_values():
    """Every parameter has its elements of the flat tensor, in its own shape"""
    module, flat = small(), torch.arange(11.0)
    before = [p.detach().clone() for p in module.parameters()]
    expected = pieces(flat, module)
    unflatten_into(module, flat)
    end = 11
    for (name, p), right, old in zip(module.named_parameters(), expected, before):
        end -= right.numel()
        backwards = flat[end : end + right.numel()].view(right.shape)
        first = flat[: right.numel()].view(right.shape)
        known = [
            same_as(old, "nothing-changed", "the parameter still has its old values"),
            same_as(backwards, "backwards", "the parameters are taken in reverse order"),
            same_as(first, "always-from-0", "that is the beginning of flat; move on each time"),
        ]
        if right.dim() == 2:
            columns = right.reshape(-1).view(right.shape[::-1]).t()
            known.append(same_as(columns, "transposed", "filled column by column"))
        compare_tensors(right, p.detach(), f"{name}, from a flat tensor 0, 1, 2, ...", known=known)


@exercise("zero.flat.unflatten_into")
def test_same_objects():
    """The Parameter objects stay the same"""
    module = small()
    before = dict(module.named_parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    unflatten_into(module, torch.zeros(11))
    for name, p in module.named_parameters():
        require(
            p is before[name],
            f"{name} is a new object now. An optimizer made before still holds the old one, and "
            f"would train it. Set p.data of the Parameter that is there.",
            "new-objects",
        )
        require(isinstance(p, nn.Parameter) and p.is_leaf, f"{name} is no Parameter any more.")
        require(p.requires_grad, f"{name} needs no gradient any more.", "frozen")
    assert optimizer.param_groups


@exercise("zero.flat.unflatten_into")
def test_flat_to_model():
    """What is written into flat afterwards, the model sees"""
    module, flat = small(), torch.zeros(11)
    unflatten_into(module, flat)
    flat.copy_(torch.arange(11.0))
    for (name, p), right in zip(module.named_parameters(), pieces(flat, module)):
        require(
            torch.equal(p.detach(), right),
            f"After flat.copy_(...) {name} is still {p.flatten()[:4].tolist()}, not "
            f"{right.flatten()[:4].tolist()}: it is a copy, with memory of its own.",
            "not-a-view",
        )


@exercise("zero.flat.unflatten_into")
def test_gaps():
    """Also a flat tensor with gaps between its elements is used itself, not a copy of it"""
    module, memory = small(), torch.zeros(22)
    flat = memory[::2]
    try:
        unflatten_into(module, flat)
    except (RuntimeError, ValueError) as error:
        fail(f"flat = x[::2], which is one-dimensional, raises {type(error).__name__}: {error}")
    memory.copy_(torch.arange(22.0))
    for (name, p), right in zip(module.named_parameters(), pieces(flat, module)):
        require(
            torch.equal(p.detach(), right),
            f"flat = x[::2]. After x.copy_(0, 1, 2, ...) {name} is {p.flatten()[:4].tolist()}, not "
            f"{right.flatten()[:4].tolist()}: it is a copy, or the gaps were ignored. "
            f"flat.contiguous() copies a tensor with gaps; slice flat itself.",
            "not-a-view",
        )


@exercise("zero.flat.unflatten_into")
def test_model_to_flat():
    """What an optimizer changes in the model stands in flat"""
    module, flat = small(), torch.randn(11, generator=torch.Generator().manual_seed(1))
    unflatten_into(module, flat)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    before = flat.clone()
    module(torch.ones(2, 3)).sum().backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    optimizer.step()
    compare_tensors(before - gradient, flat, "flat after a step of SGD")
    require(not flat.requires_grad, "flat has become part of the autograd graph.", "not-detached")


@exercise("zero.flat.unflatten_into")
def test_padding_stays():
    """Elements past the last parameter are padding: left alone"""
    module, flat = small(), torch.arange(16.0)
    expected = pieces(flat, module)
    try:
        unflatten_into(module, flat)
    except Exception as error:
        fail(
            f"flat has 16 elements for 11 of the parameters; the last 5 are padding, which is "
            f"allowed. It raises {type(error).__name__}: {error}",
            "padding-refused",
        )
    for (name, p), right in zip(module.named_parameters(), expected):
        at_the_end = (right + 5.0).view(right.shape)
        known = [same_as(at_the_end, "padding-first", "the padding is taken to be in front")]
        compare_tensors(right, p.detach(), f"{name}, with padding behind", known=known)
    compare_tensors(torch.arange(16.0), flat, "flat, padding included")


@exercise("zero.flat.unflatten_into")
def test_tied_stay_tied():
    """A shared parameter takes its elements once, and stays shared"""
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module.append(nn.Linear(2, 1, bias=False))
    module[1].weight = module[0].weight
    flat = torch.arange(6.0)
    try:
        unflatten_into(module, flat)
    except Exception as error:
        fail(
            f"Two layers share one weight of 4 elements, a third has 2: 6 in all. A flat tensor "
            f"of 6 raises {type(error).__name__}: {error}",
            "tied-twice",
        )
    require(module[0].weight is module[1].weight, "The two layers share no weight any more.", "")
    expected = [torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[4.0, 5.0]])]
    for p, right, what in zip(module.parameters(), expected, ("shared weight", "third weight")):
        compare_tensors(right, p.detach(), f"the {what}, from 0, 1, 2, 3, 4, 5")


@exercise("zero.flat.unflatten_into")
def test_frozen_too():
    """Frozen parameters become views as well, and stay frozen"""
    module, flat = small(), torch.arange(11.0)
    module[0].weight.requires_grad_(False)
    expected = pieces(flat, module)
    unflatten_into(module, flat)
    left_out = "frozen-left-out"
    for (name, p), right in zip(module.named_parameters(), expected):
        require(
            torch.equal(p.detach(), right),
            f"With a frozen first weight, {name} is {p.flatten()[:4].tolist()} and should be "
            f"{right.flatten()[:4].tolist()}. Frozen parameters have their place too.",
            left_out,
        )
    require(not module[0].weight.requires_grad, "The frozen weight is trained now.", "unfrozen")


@exercise("zero.flat.unflatten_into")
@pytest.mark.parametrize("last", ["float64", "bfloat16"])
def test_refuses_mixed(last):
    """Parameters of two dtypes cannot share one flat tensor: ValueError, and nothing changes"""
    module = small()
    module[2].to(getattr(torch, last))
    before = {name: p.dtype for name, p in module.named_parameters()}
    what = f"The first layer has float32 parameters, the last {last}; these cannot share flat"
    try:
        unflatten_into(module, torch.zeros(11))
    except ValueError:
        for name, p in module.named_parameters():
            text = (
                f"{what}: ValueError comes, but {name} is {p.dtype} now. Check all of them first."
            )
            require(p.dtype == before[name], text, "checked-too-late")
            text = f"{what}: ValueError comes, but {name} has been changed already. Check first."
            require(bool(p.any()), text, "checked-too-late")
        return
    except Exception as error:
        fail(f"{what}: raises {type(error).__name__}, it should be ValueError.", "wrong-error")
    changed = [name for name, p in module.named_parameters() if p.dtype != before[name]]
    text = f"{what}: nothing is raised. " + (f"{changed} are float32 now." if changed else "")
    fail(f"{text} check_alike(named) compares them.", "mixes-dtypes")


@exercise("zero.flat.unflatten_into")
@pytest.mark.parametrize("case", ["too short", "two dimensions", "another dtype", "another device"])
def test_refuses_flat(case):
    """A flat tensor that cannot serve raises ValueError, and the module stays as it was"""
    wrong = {
        "too short": torch.zeros(10),
        "two dimensions": torch.zeros(11, 1),
        "another dtype": torch.zeros(11, dtype=torch.float64),
        "another device": torch.zeros(11, device="meta"),
    }[case]
    module = small()
    before = [p.detach().clone() for p in module.parameters()]
    try:
        unflatten_into(module, wrong)
    except ValueError:
        for (name, p), old in zip(module.named_parameters(), before):
            text = f"{case}: ValueError comes, but {name} has been changed already. Check first."
            same = p.dtype == old.dtype and torch.equal(p.detach(), old)
            require(same, text, "checked-too-late")
        return
    except Exception as error:
        fail(f"{case}: raises {type(error).__name__}, it should be ValueError.", "wrong-error")
    fail(f"{case}: nothing is raised, it should be ValueError.", "accepts-nonsense")
