"""Recomputed blocks give the gradients of the blocks themselves, bit for bit, and keep little."""

import gc
import weakref
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from zero import models
from zero.activations import checkpoint, checkpoint_blocks
from zero.meter import Meter
from zero.reserve import Reserve
from zero.stores import FileStore, HostStore

Pair = namedtuple("Pair", "first second")


@dataclass
class Result:
    value: Any
    extra: Any = None


class Block(nn.Module):
    """Arguments of many kinds, random numbers, results of many kinds (case G11)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Linear(5, 11), nn.Linear(11, 5)

    def forward(self, x, nothing, times, *, flag, more=None):
        assert nothing is None and flag is True
        h = F.dropout(torch.tanh(self.up(x)), 0.5)
        for _ in range(times):
            h = h + torch.rand_like(h)
        out = self.down(h)
        if more is not None:
            out = out + more["a"] * more["b"][0]
        result = Result(out, Pair(h.sum(), [None, "text", h.argmax()]))
        return {"result": result, "shape": out.shape}


def run(how, *, x=None, more=None, block=None, steps=2):
    """Gradients after two passes, the random number drawn next, and what the block returned."""
    block = Block() if block is None else block
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(2)) if x is None else x
    x = x.detach().requires_grad_()
    torch.manual_seed(3)
    for _ in range(steps):
        out = how(block, x, None, 3, flag=True, more=more)
        torch.rand(2)  # others draw numbers between the two runs
        result = out["result"]
        (result.value.square().sum() + result.extra.first).backward()
    grads = [x.grad, *(p.grad for p in block.parameters())]
    return grads, torch.rand(3), out


def plain(block, *args, **kwargs):
    return block(*args, **kwargs)


def in_torch(block, *args, **kwargs):
    return torch_checkpoint(block, *args, use_reentrant=False, **kwargs)


def placed(**options):
    return lambda block, *args, **kwargs: checkpoint(block, *args, **options, **kwargs)


PLACES = {
    "here": lambda: placed(),
    "cpu": lambda: placed(offload="cpu"),
    "disk": lambda: placed(offload="disk"),
    "reserve": lambda: placed(reserve=Reserve(1 << 12)),
}


# --- the same gradients --------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_gradients_are_bitwise_those_of_the_block(place):
    """None, numbers, flags and nested tensors pass; so do dropout and the numbers drawn after."""
    expected, next_numbers, _ = run(plain)
    for how in (in_torch, PLACES[place]()):
        grads, numbers, out = run(how)
        assert all(map(torch.equal, grads, expected))
        assert torch.equal(numbers, next_numbers), "backward must not use up random numbers"
    result = out["result"]
    assert isinstance(result, Result) and isinstance(result.extra, Pair)
    assert result.extra.second[:2] == [None, "text"]
    assert result.extra.second[2].dtype == torch.int64
    assert not result.extra.second[2].requires_grad
    assert out["shape"] == (7, 5)


@pytest.mark.parametrize("place", PLACES)
def test_tensors_inside_arguments_get_gradients(place):
    def gradients(how):
        a, b = torch.full((5,), 2.0, requires_grad=True), torch.ones(7, 1, requires_grad=True)
        run(how, more={"a": a, "b": (b, 3)}, steps=1)
        return a.grad, b.grad

    assert all(map(torch.equal, gradients(PLACES[place]()), gradients(plain)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("place", PLACES)
def test_dtype_strides_and_values_come_back(place, dtype):
    """Transposed, sliced, broadcast, empty, scalar: the second run sees what the first saw."""
    base = torch.randn(4, 6, 3).to(dtype)
    arguments = [
        base,
        base.transpose(0, 2),
        base[:, 1:3],
        base[:1].expand(4, 6, 3),
        base[:, :0],
        base[0, 0, 0],
        torch.arange(5),
        torch.tensor([True, False]),
        nn.Parameter(base.clone()),
    ]
    seen = []

    def block(*tensors):
        seen.append([(t.clone(), t.dtype, t.device, t.shape, t.requires_grad) for t in tensors])
        strides.append([t.stride() for t in tensors[:2]])
        return tensors[0] * weight

    strides, weight = [], torch.ones((), dtype=dtype, requires_grad=True)
    arguments[0] = arguments[0].requires_grad_()
    PLACES[place]()(block, *arguments).sum().backward()
    assert strides[0] == strides[1] == [(18, 3, 1), (1, 3, 18)]
    for first, second in zip(*seen):
        assert torch.equal(first[0], second[0])
        assert first[1:] == second[1:]


@pytest.mark.parametrize("place", PLACES)
def test_a_block_used_twice_and_a_block_inside_a_block(place):
    def gradients(how):
        inner, outer = nn.Linear(5, 5), nn.Linear(5, 5)
        for i, layer in enumerate((inner, outer)):
            layer.load_state_dict({"weight": torch.eye(5) * (0.3 + i), "bias": torch.ones(5) * i})
        x = torch.randn(7, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
        torch.manual_seed(0)

        def block(x):
            return F.dropout(how(inner, F.dropout(outer(x))))

        how(block, how(block, x)).square().sum().backward()
        return x.grad, inner.weight.grad, outer.weight.grad

    assert all(map(torch.equal, gradients(PLACES[place]()), gradients(plain)))


def test_what_needs_a_gradient():
    x = torch.randn(2, 5)
    block = nn.Linear(5, 5)
    checkpoint(block, x).sum().backward()  # the input needs none, the weights do
    assert block.weight.grad is not None
    block.requires_grad_(False)
    assert not checkpoint(block, x).requires_grad
    y = x.clone().requires_grad_()
    checkpoint(block, y).sum().backward()
    assert y.grad is not None
    with torch.no_grad():
        assert not checkpoint(nn.Linear(5, 5), y).requires_grad


def test_a_result_that_is_not_used():
    block = nn.Linear(5, 5)
    x = torch.randn(2, 5, requires_grad=True)
    used, _ = checkpoint(lambda x: (x * 2, block(x)), x)
    used.sum().backward()
    assert torch.equal(x.grad, torch.full((2, 5), 2.0))
    assert block.weight.grad is None


def test_a_block_that_returns_its_argument():
    x = torch.randn(2, 5, requires_grad=True)
    (checkpoint(lambda x: x, x) * 3).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 5), 3.0))


# --- what is kept, and for how long --------------------------------------------------------------


def deep(layers=4, dropout=0.1, **options):
    torch.manual_seed(0)
    model = models.GPT(11, 8, layers, heads=2, width=16, dropout=dropout)
    return checkpoint_blocks(model, **options) if options else model


X = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(3))
CHECKPOINT = 3 * 8 * 16 * 4  # bytes: batch, time, width, fp32


def kept_by_blocks(dropout=0.0, **options):
    """Activation bytes that four more blocks keep from forward to backward, and all after it."""
    kept = []
    for layers in (1, 5):
        model = deep(layers, dropout, **options)
        with Meter(model) as meter:
            loss = model(X, X)
            kept.append(meter.mark("after forward")["activations"])
            loss.backward()
            after = meter.mark("after backward")["activations"]
    return kept[1] - kept[0], after


def test_bytes_kept_are_the_checkpoints():
    whole, after_whole = kept_by_blocks()
    assert whole > 4 * 12 * CHECKPOINT
    for options, expected in [
        ({"offload": None}, CHECKPOINT),
        ({"offload": "cpu"}, CHECKPOINT),  # of a machine without a device: a plain copy
        ({"offload": "disk"}, 0),
    ]:
        kept, after = kept_by_blocks(**options)
        assert kept == 4 * expected, options
        assert after == after_whole
    random_state = torch.get_rng_state().nbytes
    assert kept_by_blocks(0.1, offload=None)[0] == 4 * (CHECKPOINT + random_state)


@pytest.mark.parametrize("place", PLACES)
def test_retained_graphs_and_second_passes(place):
    block = nn.Linear(5, 5)
    x = torch.randn(2, 5, requires_grad=True)
    loss = PLACES[place]()(block, x).square().sum()
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    loss.backward()
    assert torch.equal(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second"):
        loss.backward()


@pytest.mark.parametrize("place", PLACES)
def test_an_exception_in_the_second_run_leaves_nothing(place):
    """No memory, and the random state as it was."""
    store = FileStore() if place == "disk" else HostStore() if place == "cpu" else None
    reserve = Reserve(1 << 12) if place == "reserve" else None
    runs = []

    def block(x):
        runs.append(1)
        h = F.dropout(x * 2)
        if len(runs) == 2:
            raise ArithmeticError("in the second run")
        return h

    x = torch.randn(7, 5, requires_grad=True) * 1
    alive = weakref.ref(x.untyped_storage())
    loss = checkpoint(block, x, offload=store, reserve=reserve).sum()
    del x
    torch.rand(2)
    before = torch.get_rng_state()
    with pytest.raises(ArithmeticError, match="in the second run"):
        loss.backward()
    assert torch.equal(torch.get_rng_state(), before)
    for arena in [s.arena for s in (store, reserve) if hasattr(s, "arena")]:
        assert arena.in_use == 0
    del loss
    gc.collect()
    assert alive() is None
    x = torch.randn(7, 5, requires_grad=True)
    checkpoint(block, x, offload=store, reserve=reserve).sum().backward()  # the next step is well
    assert x.grad is not None


# --- what is refused -----------------------------------------------------------------------------


def test_clear_errors():
    x = torch.randn(2, 5, requires_grad=True)
    block = nn.Linear(5, 5)
    with pytest.raises(RuntimeError, match="changes an argument in place"):
        checkpoint(lambda x: x.mul_(2), x.clone())
    with pytest.raises(TypeError, match="no tensor was found"):
        checkpoint(lambda x: "text", x)
    with pytest.raises(RuntimeError, match=r"not torch\.autograd\.grad"):
        torch.autograd.grad(checkpoint(block, x).sum(), x)
    with pytest.raises(ValueError, match="offload='tape' is unknown"):
        checkpoint(block, x, offload="tape")
    with pytest.raises(ValueError, match="choose one"):
        checkpoint(block, x, offload="cpu", reserve=Reserve(100))
    with pytest.raises(MemoryError, match="no room for 40 bytes: 0 of 10 bytes are in use"):
        checkpoint(block, x, reserve=Reserve(10))
    with pytest.raises(ValueError, match="no ModuleList"):
        checkpoint_blocks(block)
    model = checkpoint_blocks(deep())
    with pytest.raises(ValueError, match="checkpointed already"):
        checkpoint_blocks(model)
