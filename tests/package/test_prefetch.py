"""ZeRO-3 gathers the next unit while this one computes, in the order of the pass before.

Results and memory are the same without it: only a look at what has been started tells.
"""

import pytest
import torch
from torch import nn

from helpers import STAGES, Together, rows, sharded
from zero import comm
from zero.unit import State

pytestmark = pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")


class Look(torch.autograd.Function):
    """Changes nothing, and calls `look` when forward and when backward come here."""

    @staticmethod
    def forward(ctx, x, look):
        ctx.look = look
        look("forward")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.look("backward")
        return grad, None


class Layer(nn.Module):
    """A unit. It looks last in forward, so first of all its own operations in backward."""

    def __init__(self, number, look):
        super().__init__()
        self.linear, self.number, self.look = nn.Linear(7, 7), number, look

    def forward(self, x):
        return Look.apply(torch.tanh(self.linear(x)), lambda way: self.look(way, self.number))


class Model(nn.Module):
    """Four units, run in the order that `order` says.

    With `gap` there is an operation between two units. Without it the gradient that ends a unit's
    backward is the one that begins the next, so that for a moment both are open.
    """

    def __init__(self, gap, look):
        super().__init__()
        self.layers = nn.ModuleList(Layer(i, look) for i in range(4))
        self.gap, self.order = gap, [0, 1, 2, 3]

    def forward(self, x):
        for i in self.order:
            x = self.layers[i](x * 1.0 if self.gap else x)
        return x


USUAL, OTHER = [0, 1, 2, 3], [0, 2, 1, 3]
ORDERS = [USUAL, USUAL, USUAL, OTHER, OTHER]


def look_case(rank, n, gap):
    """What `look` saw in each pass of each step: the unit that computes, the units in memory or on
    their way there, and the unit whose all-gather was started last."""
    seen = {}

    def look(way, number):
        there = {i: u.state for i, u in enumerate(opt.units) if u.state is not State.SHARDED}
        assert there.pop(number) is State.FULL
        assert set(there.values()) <= {State.GATHERING}, "it was waited for"
        last = [e.name for e in log.entries if e.op == "all_gather"][-1]
        seen[step, way].append((number, list(there), last))

    model, opt = sharded(rank, n, 3, make=lambda: Model(gap, look), units=[Layer])
    for step, model.order in enumerate(ORDERS):
        seen[step, "forward"], seen[step, "backward"] = [], []
        with comm.record() as log:
            model(rows(step, rank, n)[0]).sum().backward()
            opt.step()
        opt.zero_grad()
    return seen


looks = Together(look_case, [(True,), (False,)])


def expected(step, order, ahead):
    """Each unit with the one after it on its way; or alone, where nothing goes `ahead`."""
    found = []
    for unit, following in zip(order, [*order[1:], None]):
        there = [following] if ahead and following is not None else []
        last = there[0] if there else unit
        found.append((unit, there, f"parameters of layers.{last}, step {step + 1}"))
    return found


@pytest.mark.parametrize("gap", [True, False])
def test_the_next_unit_is_on_its_way_while_this_one_computes(gap):
    """From the second step on; the first has no order to go by."""
    for seen in looks(2, gap):
        for step, order in enumerate(ORDERS[:3]):
            for way, units in (("forward", order), ("backward", order[::-1])):
                assert seen[step, way] == expected(step, units, ahead=step > 0), (step, way)


@pytest.mark.parametrize("gap", [True, False])
def test_another_order_drops_the_record_and_makes_a_new_one(gap):
    """The first unit still takes the old record at its word. The second is not the one that it
    names; from there to the end of the pass nothing goes ahead. Then the new order holds."""
    for seen in looks(2, gap):
        for way, old, new in (("forward", USUAL, OTHER), ("backward", USUAL[::-1], OTHER[::-1])):
            in_vain = expected(3, old, ahead=True)[0]
            assert seen[3, way] == [in_vain, *expected(3, new, ahead=False)[1:]]
            assert seen[4, way] == expected(4, new, ahead=True)
