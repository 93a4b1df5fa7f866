"""Checks of `flatten_params`: all parameters, each once, in order, as a copy."""

import pytest
import torch
from torch import nn

from course.checks import compare_tensors, exercise, fail, require, same_as
from zero.flat import flatten_params


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))


def joined(module: nn.Module, transposed: bool = False) -> torch.Tensor:
    parameters = [p.detach() for p in module.parameters()]
    return torch.cat([(p.t() if transposed else p).reshape(-1) for p in parameters])


@exercise("zero.flat.flatten_params")
def test_order():
    """All parameters in registration order, each row by row"""
    module = small()
    by_name = torch.cat([p.detach().reshape(-1) for _, p in sorted(module.named_parameters())])
    backwards = torch.cat([p.detach().reshape(-1) for p in list(module.parameters())[::-1]])
    weights = torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.dim() > 1])
    compare_tensors(
        joined(module),
        flatten_params(module),
        "flatten_params of two linear layers",
        atol=0.0,
        known=[
            same_as(backwards, "backwards", "the parameters stand in reverse order"),
            same_as(by_name, "by-name", "sorted by name"),
            same_as(joined(module, transposed=True), "transposed", "column by column"),
            same_as(weights, "no-biases", "the biases are missing"),
        ],
    )


@exercise("zero.flat.flatten_params")
def test_tied():
    """A tied parameter comes once"""
    module = small()
    module.append(nn.Linear(1, 2))
    module.append(nn.Linear(3, 2))
    module[4].weight = module[0].weight
    twice = torch.cat([p.detach().reshape(-1) for m in module for p in m.parameters()])
    compare_tensors(
        joined(module),
        flatten_params(module),
        "flatten_params of a module in which two layers share one weight",
        atol=0.0,
        known=[same_as(twice, "tied-twice", "the shared weight stands there twice")],
    )


@exercise("zero.flat.flatten_params")
def test_frozen():
    """Parameters that need no gradient are parameters too"""
    module = small()
    module[0].weight.requires_grad_(False)
    trainable = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
    compare_tensors(
        joined(module),
        flatten_params(module),
        "flatten_params of a module with a frozen weight",
        atol=0.0,
        known=[same_as(torch.cat(trainable), "frozen-left-out", "the frozen weight is missing")],
    )


@exercise("zero.flat.flatten_params")
def test_detached():
    """The result has no gradient history"""
    flat = flatten_params(small())
    require(
        not flat.requires_grad,
        "The result requires grad: it is part of the autograd graph. Detach the parameters first.",
        "not-detached",
    )


@exercise("zero.flat.flatten_params")
@pytest.mark.parametrize("count", [1, 2])
def test_copy(count):
    """The result is a copy, also of a module with one parameter"""
    module = nn.Linear(3, 2, bias=count == 2)
    before = joined(module)
    flatten_params(module).zero_()
    require(
        torch.equal(joined(module), before),
        "After flatten_params(module).zero_() the module's parameters are zero too: the result "
        "shares their memory. It must be a copy.",
        "not-a-copy",
    )
    require(
        all(p.dim() == (2 if p.numel() == 6 else 1) for p in module.parameters()),
        "The module's own parameters have changed their shape.",
        "module-changed",
    )


@exercise("zero.flat.flatten_params")
def test_strided():
    """A parameter that is itself a transposed view is flattened row by row"""
    module = nn.Module()
    module.weight = nn.Parameter(torch.arange(6.0).view(2, 3).t())
    right = torch.tensor([0.0, 3.0, 1.0, 4.0, 2.0, 5.0])
    in_memory = same_as(torch.arange(6.0), "as-in-memory", "in the order of memory, not row by row")
    compare_tensors(right, flatten_params(module), "flatten_params", atol=0.0, known=[in_memory])


@exercise("zero.flat.flatten_params")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype(dtype):
    """The result has the parameters' dtype"""
    module = small().to(dtype)
    compare_tensors(
        joined(module), flatten_params(module), f"flatten_params of a {dtype} module", atol=0.0
    )


@exercise("zero.flat.flatten_params")
def test_mixed():
    """Parameters of two dtypes are refused, not converted"""
    module = small()
    module[2].double()
    try:
        got = flatten_params(module)
    except ValueError:
        return
    fail(f"The result has dtype {got.dtype}; it should raise ValueError.", "mixes-dtypes")


@exercise("zero.flat.flatten_params")
def test_nothing():
    """A module without parameters gives an empty tensor"""
    compare_tensors(torch.empty(0), flatten_params(nn.Tanh()), "flatten_params(nn.Tanh())")
