"""Grades lesson 01."""

import itertools

import pytest
import torch
from torch import nn

from course.checks import compare_tensors, compare_values, exercise, fail, require, same_as
from zero.flat import flatten_params, shard_bounds

# --- shard_bounds --------------------------------------------------------------------------------


def bounds(numel: int, world_size: int) -> list:
    return [shard_bounds(numel, world_size, rank) for rank in range(world_size)]


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_divisible(world_size):
    """8 elements are cut into equal ranges that follow each other"""
    n = 8 // world_size
    starts = range(0, 8, n)
    compare_values(
        [(start, start + n) for start in starts],
        bounds(8, world_size),
        f"shard_bounds(8, {world_size}, rank), rank by rank",
        known=[
            ([(start, n) for start in starts], "length-for-end", "that is (start, length)"),
            ([(start, start + n - 1) for start in starts], "end-included", "end is one past it"),
        ],
    )


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize(("numel", "world_size"), [(10, 4), (174, 4), (7, 3), (3, 4), (0, 2)])
def test_padding(numel, world_size):
    """All ranks own equally many elements, padding included"""
    ranks = range(world_size)
    n = -(-numel // world_size)
    whole, rest = divmod(numel, world_size)
    down = [(rank * whole, (rank + 1) * whole) for rank in ranks]
    starts = [rank * whole + min(rank, rest) for rank in range(world_size + 1)]
    cut = "cut short at numel, but the padding belongs to a rank too"
    compare_values(
        [(rank * n, (rank + 1) * n) for rank in ranks],
        bounds(numel, world_size),
        f"shard_bounds({numel}, {world_size}, rank), rank by rank",
        known=[
            ([(rank * n, min((rank + 1) * n, numel)) for rank in ranks], "last-cut-short", cut),
            (
                [(min(rank * n, numel), min((rank + 1) * n, numel)) for rank in ranks],
                "last-cut-short",
                cut,
            ),
            (
                down,
                "rounded-down",
                f"the length is rounded down, so the last {rest} of {numel} belong to nobody",
            ),
            (
                [*down[:-1], (down[-1][0], numel)],
                "last-takes-rest",
                "the last rank takes the rest, so its shard is longer than the others",
            ),
            (
                list(itertools.pairwise(starts)),
                "uneven",
                "the first ranks own one element more; collectives want shards of one length",
            ),
        ],
    )


@exercise("zero.flat.shard_bounds")
@pytest.mark.parametrize("arguments", [(-1, 2, 0), (8, 0, 0), (8, 2, 2), (8, 2, -1)])
def test_refuses(arguments):
    """Arguments that make no sense raise ValueError"""
    call = f"shard_bounds{arguments}"
    try:
        got = shard_bounds(*arguments)
    except ValueError:
        return
    except Exception as error:
        fail(f"{call} raises {type(error).__name__}, it should raise ValueError.", "wrong-error")
    fail(f"{call} gives {got}, it should raise ValueError.", "accepts-nonsense")


# --- flatten_params ------------------------------------------------------------------------------


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
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype(dtype):
    """The result has the parameters' dtype"""
    module = small().to(dtype)
    compare_tensors(joined(module), flatten_params(module), f"of a {dtype} module", atol=0.0)


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
