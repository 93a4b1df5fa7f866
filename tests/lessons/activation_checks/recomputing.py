"""The checks of `zero.activations.recompute`."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activation_checks import trainings
from course.checks import (
    compare_tensors,
    compare_values,
    exercise,
    fail,
    require,
    same_as,
    scaled,
    show,
)
from zero.activations import Call, checkpoint, recompute
from zero.conditions import Conditions
from zero.meter import Meter
from zero.nested import take_apart

PATH = "zero.activations.recompute"
NO_GRAPH = (
    "The block ran without a graph, so nothing could go backward through it. Autograd switches "
    "graphs off while a backward function runs; `with torch.enable_grad():` switches them on."
)

PAIRS = (
    "Only an output that needs a gradient (o.requires_grad) and has got one (g is not None) takes "
    "part in backward."
)


def first_run(block: Callable, *args) -> tuple[Call, list[Tensor], list[Tensor]]:
    """A first run without a graph: the call, its inputs as leaves, and its outputs."""
    tensors, rebuild = take_apart((args, {}))
    call = Call(block, rebuild, Conditions(tensors), None, None)
    with torch.no_grad():
        outputs, _ = take_apart(call.run(tensors))
    return call, [t.detach().requires_grad_(t.requires_grad) for t in tensors], outputs


def backward(call: Call, inputs: list[Tensor], grads: list[Tensor | None]) -> list[Tensor | None]:
    """recompute as autograd calls it: with graphs switched off."""
    graphs, run = [], call.run

    def watched(*given, **named):
        unpacked = len(given) > 1 or any(isinstance(x, Tensor) for x in given)
        text = "call.run takes one list with all tensors, call.run(inputs), not each of them."
        require(not unpacked, text, "inputs-unpacked")
        graphs.append(torch.is_grad_enabled())
        return run(*given, **named)

    call.run = watched
    with torch.no_grad():
        try:
            got = recompute(call, inputs, grads)
        except RuntimeError as error:
            if "does not require grad" in str(error) and graphs and not any(graphs):
                fail(f"{NO_GRAPH}\n{error}", "no-graph")
            raise
        finally:
            call.run = run
    if got is not None and grads[0] is not None and list(got)[:1] == [None]:
        text = "The gradient of the block's first input is None. "
        require(bool(graphs), f"{text}The block did not run again.", "not-run")
        require(any(graphs), f"{text}{NO_GRAPH}", "no-graph")
    return got


def all_none(got: list[Tensor | None], what: str) -> None:
    """Fail unless every gradient in the list is None."""
    text = f"{what} should be None. Zeros are not the same: an optimizer skips a "
    text += f"weight whose gradient is None.\ngot       {show(got)}"
    require(all(g is None for g in got), text, "zeros-for-none")


def scale(w: Tensor) -> Callable:
    return lambda x: x * w


@exercise(PATH)
def test_gradients():
    """The block x * w: gradients of x are returned, those of w stand in w.grad"""
    w = nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))
    x = torch.tensor([5.0, 6.0, 7.0], requires_grad=True)
    call, inputs, outputs = first_run(scale(w), x)
    coming = torch.tensor([1.0, 10.0, 100.0])
    got = backward(call, inputs, [coming])
    require(got is not None, "Nothing is returned; a list of gradients should be.", "returns-none")
    compare_values(1, len(got), "the number of gradients that are returned, for one input")
    require(got[0] is not None, "The gradient of x is None: nothing went back to x.", "not-there")
    again = "backward ran twice, and each time adds to .grad"
    into_x = [
        scaled(2, "backward-twice", again),
        same_as(w.detach(), "grads-ignored", "the gradient that came from above was not used"),
        same_as(outputs[0], "outputs-returned", "these are the outputs, not gradients"),
        same_as(x.detach(), "inputs-returned", "these are the inputs, not their gradients"),
    ]
    compare_tensors(w.detach() * coming, got[0], "the gradient of x", known=into_x)
    text = "w.grad is None. torch.autograd.grad gives only what it is asked for; a block's weights "
    text += "need theirs too, and torch.autograd.backward fills every .grad."
    require(w.grad is not None, text, "weights-forgotten")
    twice = [scaled(2, "backward-twice", again)]
    compare_tensors(x.detach() * coming, w.grad, "w.grad", known=twice)


@exercise(PATH)
def test_same_random_numbers():
    """The same numbers are dropped in the second run as in the first"""
    torch.manual_seed(1)
    x = torch.ones(12, requires_grad=True)
    call, inputs, (first,) = first_run(lambda x: F.dropout(x, 0.5), x)
    torch.rand(5)  # others draw numbers between the two runs
    (got,) = backward(call, inputs, [torch.ones(12)])
    if not torch.equal(got, first):
        dropped = [[i for i, v in enumerate(t.tolist()) if v == 0] for t in (first, got)]
        fail(
            f"A block with dropout. In the first run the places {dropped[0]} were dropped, in the "
            f"second {dropped[1]}: other random numbers, so these are gradients of another block. "
            f"Run it under call.conditions.restored().",
            "random-not-restored",
        )


@exercise(PATH)
def test_random_numbers_go_on():
    """Afterwards the program draws the random numbers that it would have drawn anyway"""
    torch.manual_seed(1)
    call, inputs, _ = first_run(lambda x: F.dropout(x, 0.5), torch.ones(12, requires_grad=True))
    again = torch.rand(3, generator=torch.Generator().set_state(torch.get_rng_state()))
    torch.rand(5)
    right = torch.rand(3, generator=torch.Generator().set_state(torch.get_rng_state()))
    backward(call, inputs, [torch.ones(12)])
    got = torch.rand(3)
    text = "the program draws again what it has drawn since the first run: the state was set and "
    text += "not put back, so every later dropout repeats earlier ones"
    repeated = same_as(again, "random-not-put-back", text)

    def other(expected, got):
        text = "the random state is not what it was before; put it back"
        return "random-not-put-back", text

    what = "three random numbers drawn after backward"
    compare_tensors(right, got, what, known=[repeated, other])


@exercise(PATH)
def test_autocast():
    """What was computed in 16 bits is computed in 16 bits again"""
    w = nn.Parameter(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))
    x = torch.ones(2, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        call, inputs, (out,) = first_run(lambda x: x @ w, x)
    seen = []
    block, call.block = call.block, lambda x: seen.append(block(x)) or seen[-1]
    backward(call, inputs, [torch.ones_like(out)])
    text = f"Under autocast the first run computed in {out.dtype}, the second in {seen[0].dtype}. "
    text += "call.conditions.restored() restores autocast as well."
    require(seen[0].dtype == out.dtype, text, "autocast-lost")


@exercise(PATH)
def test_backward_outside():
    """A block that switches autocast off has the gradients that it has without a checkpoint"""
    w = nn.Parameter(torch.randn(4, 4, generator=torch.Generator().manual_seed(1)))

    def block(x):
        with torch.autocast("cpu", enabled=False):
            return torch.tanh(x.float() @ w)

    x, coming = torch.ones(2, 4, requires_grad=True), torch.ones(2, 4)
    (right,) = torch.autograd.grad(block(x), w, coming)
    with torch.autocast("cpu", torch.bfloat16):
        call, inputs, _ = first_run(block, x)
    backward(call, inputs, [coming])
    rounded = w.grad.bfloat16().float()
    if torch.equal(w.grad, rounded) and not torch.equal(w.grad, right):
        fail(
            "The block runs in fp32, and its weight got a gradient computed in bf16: backward ran "
            "under call.conditions.restored() too, where autocast is on. Only the run belongs "
            f"there.\nexpected  {show(right)}\ngot       {show(w.grad)}",
            "autocast-backward",
        )
    compare_tensors(right, w.grad, "the gradient of a weight, in a block that runs in fp32")


@exercise(PATH)
def test_outputs_without_gradient():
    """Several outputs: one without a gradient, one whose gradient is None, one that is a number"""
    w, idle = nn.Parameter(torch.tensor([2.0, 3.0])), nn.Parameter(torch.ones(2))

    def block(x, index, off):
        y = x * w
        return {"y": y, "best": y.argmax() + index, "unused": y @ idle, "off": off * 2, "n": 3}

    x = torch.tensor([5.0, 6.0], requires_grad=True)
    args = x, torch.tensor(1), torch.ones(2)
    call, inputs, _ = first_run(block, *args)
    grads = [torch.ones(2), None, None, None]
    try:
        got = backward(call, inputs, grads)
    except (RuntimeError, TypeError) as error:
        fail(f"A block with four outputs, of which one has a gradient: {error}\n{PAIRS}", "pairs")
    compare_tensors(w.detach(), got[0], "the gradient of x")
    all_none([idle.grad], "The gradient of a weight behind an output to which none has come")
    all_none(got[1:], "The gradients of two inputs that need none")
    try:
        got = backward(*first_run(block, *args)[:2], [None] * 4)
    except (RuntimeError, TypeError, ValueError) as error:
        fail(f"A block of whose outputs none has got a gradient: {error}\n{PAIRS}", "pairs")
    all_none(got, "The gradients of three inputs, if no gradient has come,")
    compare_values(3, len(got), "the number of gradients, if none has come, for three inputs")


@exercise(PATH)
def test_shared():
    """Two outputs with a common part: one backward pass through both"""
    w = nn.Parameter(torch.tensor([2.0]))
    runs, added = [], []
    w.register_post_accumulate_grad_hook(added.append)

    def block(x):
        runs.append(1)
        h = (x * w).exp()
        return h, h * h

    call, inputs, _ = first_run(block, torch.tensor([0.5], requires_grad=True))
    runs.clear()
    hint = "Give all outputs to one call of torch.autograd.backward."
    try:
        (got,) = backward(call, inputs, [torch.ones(1), torch.ones(1)])
    except RuntimeError as error:
        fail(f"A block with two outputs that share a part: {error}\n{hint}", "one-by-one")
    text = f"The block ran {len(runs)} times in one backward pass; once is enough."
    require(len(runs) == 1, text, "runs-again")
    text = f"w's gradient came in {len(added)} pieces. Who waits for it (ZeRO does, with a hook) "
    require(len(added) < 2, f"{text}takes the first for all. {hint}", "one-by-one")
    e = torch.tensor([1.0]).exp()
    first = same_as(2.0 * e, "one-output", f"this comes through the first output alone. {hint}")
    compare_tensors(2.0 * e + 4.0 * e * e, got, "the gradient of x", known=[first])


@exercise(PATH)
def test_places():
    """Every gradient goes to its own output: [None, g], and a whole number in the first place"""
    x, g = torch.tensor([5.0, 6.0], requires_grad=True), torch.tensor([1.0, 10.0])
    hint = "`grads` has a place for every output, also for those that take no part. Pair outputs "
    hint += "and gradients first, and leave out pairs, not single outputs or gradients."
    blocks = {
        "x -> (x * 2, x * 3)": lambda x: (x * 2, x * 3),
        "x -> (whole numbers, x * 3)": lambda x: (torch.arange(2), x * 3),
    }
    for name, block in blocks.items():
        call, inputs, _ = first_run(block, x)
        what = f"the gradient of x, if the block is {name} and grads = [None, g]"
        try:
            (got,) = backward(call, inputs, [None, g])
        except RuntimeError as error:
            fail(f"Looking for {what}: {error}\n{hint}", "shifted")
        text = f"{what}, is None: output 2's gradient did not go to output 2.\n{hint}"
        require(got is not None, text[0].upper() + text[1:], "shifted")
        text = f"output 2's gradient went to output 1. {hint[:-1]}"
        compare_tensors(3 * g, got, what, known=[same_as(2 * g, "shifted", text)])


@exercise(PATH)
def test_detached():
    """An output that needs no gradient gets one: whoever uses it cannot know"""
    x, g = torch.tensor([5.0, 6.0], requires_grad=True), torch.tensor([1.0, 10.0])
    call, inputs, _ = first_run(lambda x: (x * 2, x.detach().max()), x)
    try:
        (got,) = backward(call, inputs, [g, torch.tensor(1.0)])
    except RuntimeError as error:
        what = "The block is x -> (x * 2, x.detach().max()), and both outputs have got a gradient"
        fail(f"{what}: {error}\n{PAIRS}", "pairs")
    compare_tensors(2 * g, got, "the gradient of x")


@exercise(PATH)
def test_nothing_stays():
    """When backward through the block is over, only gradients are left of it"""
    layer = nn.Linear(50, 50)
    call, inputs, _ = first_run(lambda x: layer(x).tanh(), torch.ones(20, 50, requires_grad=True))
    coming = torch.ones(20, 50)
    with Meter(layer) as meter:
        meter.watch(call, coming, *inputs)
        before = meter.current
        got = backward(call, inputs, [coming])
        for x in inputs:
            x.grad = None  # the inputs end with this backward pass
        gc.collect()  # what only circles hold is nobody's
        left = meter.current - before
    gradients = sum(t.nbytes for t in (*got, layer.weight.grad, layer.bias.grad))
    text = f"{left - gradients} bytes are left of the second run beside the gradients: something "
    text += "still holds its results or its graph. The next block needs that memory."
    require(left <= gradients, text, "kept")


class Nested(nn.Module):
    """Random numbers and a checkpoint inside of a checkpoint."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor, inner: Callable) -> Tensor:
        x = inner(lambda x: F.dropout(self.layer(x).tanh(), 0.5), x)
        return x + torch.rand_like(x) * self.layer(x)


@exercise(PATH)
def test_nested():
    """A checkpoint inside of a checkpoint, with dropout in both, bit for bit"""
    found = []
    for how in (lambda block, *args: block(*args), checkpoint):
        net, x = Nested(), torch.ones(3, 5, requires_grad=True)
        torch.manual_seed(4)
        how(net, how(net, x, how), how).sum().backward()
        found.append([x.grad, net.layer.weight.grad])
    for name, expected, got in zip(("x", "the weight"), *found):
        require(got is not None, f"The gradient of {name} is None.")
        compare_tensors(expected, got, f"the gradient of {name}")
        require(torch.equal(expected, got), f"The gradient of {name} differs in its last bits.")


@exercise(PATH)
@pytest.mark.parametrize("what", ["bits", "bytes"])
def test_trains(what):
    """Training on groups of one to four ranks, each with its part of the checkpoints"""
    (trainings.trains if what == "bits" else trainings.costs)(PATH)
