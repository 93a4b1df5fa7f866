"""Parameters of every kind, laid flat and cut: the model trains as on one process."""

import itertools

import pytest
import torch
from torch import nn

from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    full_weights,
    loss_of,
    m0,
    reference,
    rows,
    sharded,
    train,
    train_sharded,
    weights,
)

WORLDS = (2, 4)


# --- models --------------------------------------------------------------------------------------


def no_outputs(inputs: int) -> nn.Linear:
    """A layer whose weight has shape (0, inputs). (torch warns when it initializes one.)"""
    layer = nn.Linear(inputs, 1, bias=False)
    layer.weight = nn.Parameter(torch.empty(0, inputs))
    return layer


class WithEmpty(nn.Module):
    """M0, and a layer with no outputs at the end of the flat buffer."""

    def __init__(self):
        super().__init__()
        self.body = m0()
        self.empty = no_outputs(13)

    def forward(self, x):
        h = self.body[1](self.body[0](x))
        return self.body[2](h) + 0 * self.empty(h).sum()


class EmptyInside(nn.Module):
    """Parameters of 8, 0 and 24 elements: on 2 ranks the empty one lies inside rank 0's range."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(2, 4, bias=False)
        self.empty = no_outputs(4)
        self.last = nn.Linear(4, 6, bias=False)

    def forward(self, x):
        h = self.first(x[:, :2])
        return self.last(h)[:, :5] + 0 * self.empty(h).sum()


class Few(nn.Module):
    """One parameter with fewer or hardly more elements than there are ranks."""

    numel = 1

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.5, 1.5, self.numel))

    def forward(self, x):
        return x[:, :5] * self.w.repeat(5)[:5]


class Few3(Few):
    numel = 3


class Few5(Few):
    numel = 5


class FewUnits(nn.Module):
    """Three such parameters, each a ZeRO-3 unit of its own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Few(), Few3(), Few5()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Scalar(nn.Module):
    """A linear layer times a parameter of no dimension."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(7, 5)
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.linear(x) * self.factor


class Mixed(nn.Module):
    """Two layers of different precision."""

    first, second = torch.float32, torch.float64

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(7, 13, dtype=self.first)
        self.b = nn.Linear(13, 5, dtype=self.second)

    def forward(self, x):
        h = torch.tanh(self.a(x.to(self.first)))
        return self.b(h.to(self.second)).float()


class MixedBf16(Mixed):
    first, second = torch.bfloat16, torch.float32


class Tied(nn.Module):
    """The first and the last layer share one weight; each child is a unit of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.e, self.m, self.h = nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        self.h.weight = self.e.weight

    def forward(self, x):
        return self.h(torch.tanh(self.m(torch.tanh(self.e(x)))))[:, :5]


class OneElement(nn.Module):
    """A parameter of shape (1,) beside M0."""

    def __init__(self):
        super().__init__()
        self.body, self.gain = m0(), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.body(x) * self.gain


class Transposed(nn.Module):
    """Its weight is not contiguous in memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(5, 7).t())

    def forward(self, x):
        return x @ self.w


MODELS = {
    c.__name__: c
    for c in (
        *(WithEmpty, EmptyInside, Few, Few3, Few5, FewUnits, Scalar, Mixed, MixedBf16),
        *(Tied, OneElement, Transposed),
    )
}


# --- each of them trains as on one process -------------------------------------------------------


def model_case(rank, n, stage, name):
    model, opt = sharded(rank, n, stage, make=MODELS[name])
    norms = []
    train_sharded(model, opt, before_step=lambda opt, step: norms.append(opt.grad_norm()))
    tied = name == "Tied" and model.e.weight is model.h.weight
    layouts = [b.layout for b in opt.buckets]
    sizes = [(x.numel, x.padded_numel, x.shard_numel) for x in layouts]
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    with opt.full_params():
        state = {k: (tuple(v.shape), v.dtype) for k, v in model.state_dict().items()}
        return weights(model), norms, state, sizes, tied, shapes


CASES = list(itertools.product(STAGES, MODELS))
model_runs = Together(model_case, CASES)


def reference_norms(name: str) -> list[float]:
    norms = []

    def note(optimizer, step):
        grads = [p.grad.reshape(-1).double() for p in model.parameters()]
        norms.append(torch.cat(grads).norm().item())

    model = MODELS[name]()
    train(model, torch.optim.AdamW(model.parameters(), **ADAMW), rows, before_step=note)
    return norms


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize(("stage", "name"), CASES)
def test_trains_as_on_one_process(stage, name, n):
    """(cases A1, A2, A4, A6, A7, A13) Shapes, dtypes and keys stay; the norm is the whole one."""
    by_rank = model_runs(n, stage, name)
    loose = name == "MixedBf16"
    expected = reference(make=MODELS[name])
    assert_equal_to_reference([r[0] for r in by_rank], expected, atol=1e-2 if loose else 1e-6)
    plain = MODELS[name]().state_dict()
    for _, norms, state, sizes, tied, shapes in by_rank:
        assert norms == pytest.approx(reference_norms(name), rel=0.05 if loose else 1e-5)
        assert state == {k: (tuple(v.shape), v.dtype) for k, v in plain.items()}
        assert shapes == {k: tuple(v.shape) for k, v in expected.items()}
        assert sum(size for size, *_ in sizes) == sum(w.numel() for w in expected.values())
        assert tied == (name == "Tied")
        for numel, padded, shard in sizes:
            assert padded == (shard * n if stage else -(-numel // n) * n)
            assert 0 <= padded - numel < n


# --- padding -------------------------------------------------------------------------------------


def padding_case(rank, n, stage):
    """Four steps; then a fifth one with NaN in the padding of every gradient buffer."""
    model, opt = sharded(rank, n, stage)
    train_sharded(model, opt)
    kept = paddings(opt)
    state = [t for s in opt.inner.state.values() for t in s.values() if t.dim()]
    moments = sum(t.numel() for t in state), sum(s.param.numel() for s in opt.slices)

    loss_of(model, *rows(4, rank, n)).backward()
    for b in opt.buckets:
        if b.grad is not None:
            b.grad[b.layout.numel :] = torch.nan
    opt.reduce()
    for b in opt.buckets:
        owned_padding(b, b.owned_grad).fill_(torch.nan)
    norm = opt.clip_grad_norm_(1e6).item()
    opt.step()
    return kept, moments, norm, paddings(opt), full_weights(model, opt), opt.stepped


def owned_padding(bucket, owned: torch.Tensor) -> torch.Tensor:
    """The part of a shard (or, unsharded, of the whole buffer) that belongs to no parameter."""
    start = bucket.rank * bucket.layout.shard_numel if bucket.sharded else 0
    return owned[max(0, bucket.layout.numel - start) :]


def paddings(opt) -> list[float]:
    with opt.full_params():
        flats = [b.flat[b.layout.numel :].clone() for b in opt.buckets]
    return torch.cat(flats + [owned_padding(b, b.master) for b in opt.buckets]).tolist()


padding_runs = Together(padding_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_padding_stays_zero_and_counts_nowhere(stage):
    """(case A3) 174 parameters on 4 ranks: 2 elements of padding, or more with several buckets."""
    by_rank = padding_runs(4, stage)
    expected = reference(5)
    assert_equal_to_reference([r[4] for r in by_rank], expected)
    model = m0()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    train(model, optimizer, rows)
    loss_of(model, *rows(4)).backward()
    whole = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm().item()
    for kept, (state, owned), norm, after, _, stepped in by_rank:
        assert kept and set(kept) == {0.0}
        assert set(after) == {0.0}
        assert state == 2 * owned, "moments for padding"
        assert norm == pytest.approx(whole, rel=1e-5)
        assert stepped
    assert sum(owned for _, (_, owned), *_ in by_rank) == (174 * 4 if stage == 0 else 174)
