"""Modules that do what modules rarely do, and memory that leaves a module by another door."""

import itertools
import types

import pytest
import torch
from torch import nn

from helpers import (
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
    loss_of,
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
)


class Model(nn.Module):
    """An odd `middle` of width 13 between two layers."""

    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(0)
        self.start, self.middle, self.end = nn.Linear(7, 13), middle(), nn.Linear(13, 5)

    def forward(self, x):
        return self.end(self.middle(self.start(x)))


class Table(nn.Module):
    """Returns a part of its own parameter, as a table of learned positions does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 20 * 13).view(20, 13))

    def forward(self, length):
        return self.weight[:length]


class Positions(nn.Module):
    """The list beside the table makes a unit of each."""

    def __init__(self):
        super().__init__()
        self.table, self.layers = Table(), nn.ModuleList([nn.Linear(13, 13)])

    def forward(self, x):
        return self.layers[0](x) + self.table(4).mean(0)


class Whole(Positions):
    """The parameter itself is returned, inside a list."""

    def __init__(self):
        super().__init__()
        self.table.forward = lambda length: [self.table.weight, length]

    def forward(self, x):
        return self.layers[0](x) + self.table(4)[0].mean(0)


class InPlace(nn.Module):
    """Changes the output of one layer and the input of the next in place."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(13, 13), nn.Linear(13, 13)

    def forward(self, x):
        h = self.a(x)
        h += 1
        return self.b(torch.relu_(h))


class Silent(nn.Module):
    """Calls a module that returns nothing and leaves its result elsewhere."""

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(13, 13)

        def forward(self, x, out):
            out.append(self.layer(x))

    def __init__(self):
        super().__init__()
        self.writer = self.Writer()

    def forward(self, x):
        out = []
        self.writer(x, out)
        return torch.tanh(out[0])


class Direct(nn.Module):
    """Calls what is inside of a block, past the block."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(13, 13)

        def forward(self, x):
            return self.inner(x)

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(13))
        self.blocks = nn.ModuleList([self.Block(), self.Block()])

    def forward(self, x):
        return self.gain * self.blocks[1].inner(self.blocks[0](x))


class Shared(nn.Module):
    """One submodule under two names and in a list, called three times, once inside itself."""

    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(13, 13), nn.Tanh())
        self.two, self.layers = self.one, nn.ModuleList([self.one, nn.Linear(13, 13)])

    def forward(self, x):
        return self.layers[1](self.two(self.layers[0](self.one(x))))


class Skipping(nn.Module):
    """Returns its input itself; its layer goes unused."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(13, 13)

    def forward(self, x):
        return x


class Cutting(nn.Module):
    """The graph is cut in the middle: nothing before it is trained."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(13, 13)

    def forward(self, x):
        with torch.no_grad():
            return torch.tanh(self.layer(x))


class Recursive(nn.Module):
    """Calls itself."""

    def __init__(self):
        super().__init__()
        self.layer, self.gain = nn.Linear(13, 13), nn.Parameter(torch.ones(13))

    def forward(self, x, times=3):
        return self(torch.tanh(self.layer(x)) * self.gain, times - 1) if times else x


class Unbinding(nn.Module):
    """Returns several views of one tensor, of which one is used."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(13, 26)

    def forward(self, x):
        return self.layer(x).chunk(2, -1)[1]


MIDDLES = {
    m.__name__: m
    for m in (
        *(Positions, Whole, InPlace, Silent, Shared, Skipping, Cutting, Recursive, Unbinding),
    )
}


def odd_case(rank, n, stage, name):
    """Train, evaluate, and look at what is left."""
    model, opt = sharded(rank, n, stage, make=lambda: Model(MIDDLES[name]))
    train_sharded(model, opt, 3)
    with torch.no_grad():
        out = model(rows(9)[0])
    kept = sum(b.flat.untyped_storage().nbytes() for b in opt.buckets) if stage == 3 else 0
    return full_weights(model, opt), out, kept


odd = Together(odd_case, itertools.product(STAGES, MIDDLES))


@pytest.mark.parametrize("name", MIDDLES)
@pytest.mark.parametrize("stage", STAGES)
def test_odd_modules_train_as_in_one_process(stage, name):
    by_rank = odd(2, stage, name)
    expected = reference(3, make=lambda: Model(MIDDLES[name]))
    assert_equal_to_reference([w for w, *_ in by_rank], expected)
    plain = Model(MIDDLES[name])
    plain.load_state_dict(expected, strict=False)
    for _, out, kept in by_rank:
        assert torch.allclose(out, plain(rows(9)[0]), atol=1e-5)
        assert kept == 0


class Hidden(Positions):
    """A view of the parameter lies in an object that cannot be copied with another one in it."""

    def __init__(self):
        super().__init__()
        self.table.forward = lambda length: types.SimpleNamespace(rows=self.table.weight[:length])

    def forward(self, x):
        return self.layers[0](x) + self.table(4).rows.mean(0)


def hidden_case(rank, n):
    model, opt = sharded(rank, n, 3, make=lambda: Model(Hidden))
    text = "no error"
    try:
        model(rows(0)[0])
    except RuntimeError as error:
        text = str(error)
    left = sum(b.flat.untyped_storage().nbytes() for b in opt.buckets)
    with opt.full_params():
        out = model(rows(0)[0])
    return text, left, out.detach()


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_a_view_of_a_parameter_that_cannot_be_copied_is_refused():
    for text, left, out in on_ranks(hidden_case, 2):
        assert "middle.table returns a view of its parameters" in text
        assert "SimpleNamespace; return a copy of it (.clone())" in text
        assert left == 0
        assert torch.equal(out, Model(Hidden)(rows(0)[0]))


def direct_case(rank, n):
    """Refused with the usual units; with smaller ones it works."""
    model, opt = sharded(rank, n, 3, make=lambda: Model(Direct))
    text = "no error"
    try:
        train_sharded(model, opt, 1)
    except RuntimeError as error:
        text = str(error)
    model, opt = sharded(rank, n, 3, make=lambda: Model(Direct), units=[nn.Linear])
    train_sharded(model, opt, 3)
    return full_weights(model, opt), text


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_a_module_inside_of_a_unit_cannot_be_called_alone():
    by_rank = on_ranks(direct_case, 2)
    assert_equal_to_reference([w for w, _ in by_rank], reference(3, make=lambda: Model(Direct)))
    for _, text in by_rank:
        assert "needs the data of middle.blocks.1.inner.weight" in text
        assert "zero.shard(..., units=[...])" in text


# --- memory that NumPy was shown -----------------------------------------------------------------


class Telling(nn.Linear):
    """Shows its weight to NumPy while it runs."""

    def forward(self, x):
        if self.training and getattr(self, "tells", False):
            self.array = self.weight.detach().numpy()
        return super().forward(x)


def telling():
    torch.manual_seed(0)
    return nn.Sequential(Telling(7, 13), nn.Tanh(), nn.Linear(13, 5))


def numpy_case(rank, n):
    """In `full_params`, then in a forward pass; the batch is repeated, and training goes on."""
    model, opt = sharded(rank, n, 3, make=telling)
    train_sharded(model, opt, 2)
    texts, arrays = [], []
    try:
        with opt.full_params():
            arrays.append(model[2].bias.detach().numpy())
    except RuntimeError as error:
        texts.append(str(error))
    kept = arrays[0].copy()
    model[0].tells = True
    try:
        loss_of(model, *rows(2, rank, n)).backward()
    except RuntimeError as error:
        texts.append(str(error))
    model[0].tells = False
    train_sharded(model, opt, [2, 3])
    left = sum(b.flat.untyped_storage().nbytes() for b in opt.buckets)
    with opt.full_params():
        copies = [p.detach().clone().numpy() for p in model.parameters()]
    return full_weights(model, opt), texts, (arrays[0] == kept).all(), left, len(copies)


@pytest.mark.skipif(3 not in STAGES, reason="needs stage 3")
def test_parameters_shown_to_numpy_are_named_and_training_goes_on():
    by_rank = on_ranks(numpy_case, 2)
    assert_equal_to_reference([w for w, *_ in by_rank], reference(make=telling))
    for _, texts, unchanged, left, copies in by_rank:
        assert len(texts) == 2
        assert "given the memory of one of 2.weight, 2.bias, so ZeRO-3 cannot free it" in texts[0]
        assert "given the memory of one of 0.weight, 0.bias, so ZeRO-3 cannot free it" in texts[1]
        assert all("p.detach().clone().numpy()" in text for text in texts)
        assert unchanged, "an array that the user holds keeps its values"
        assert (left, copies) == (0, 4)
