"""`zero.adam` has the bits of `torch.optim.AdamW`, whole or cut into slices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from zero.adam import AdamW, adamw_update

HYPER = {"lr": 1e-2, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}


def gradients(numel: int, steps: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(numel)
    return [torch.randn(numel, generator=generator).to(dtype) for _ in range(steps)]


def run(optimizer, params: list[nn.Parameter], grads: list[list[torch.Tensor | None]]):
    for row in grads:
        for p, grad in zip(params, row, strict=True):
            p.grad = grad
        optimizer.step()


def start(numel: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.linspace(-1, 1, numel, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("numel", [0, 1, 7, 1000])
def test_bitwise_equal_to_torch(numel, dtype):
    ours, theirs = nn.Parameter(start(numel, dtype)), nn.Parameter(start(numel, dtype))
    grads = [[g] for g in gradients(numel, 20, dtype)]
    optimizer, reference = AdamW([ours], **HYPER), torch.optim.AdamW([theirs], **HYPER)
    run(optimizer, [ours], grads)
    run(reference, [theirs], grads)
    assert torch.equal(ours, theirs)
    for moment in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(optimizer.state[ours][moment], reference.state[theirs][moment])
    assert optimizer.state[ours]["step"] == reference.state[theirs]["step"].item() == 20


@settings(deadline=None, max_examples=60)
@given(
    lr=st.floats(1e-5, 1.0),
    beta1=st.floats(0.0, 0.999),
    beta2=st.floats(0.0, 0.9999),
    eps=st.floats(1e-10, 1e-2),
    weight_decay=st.floats(0.0, 1.0),
)
def test_bitwise_equal_for_any_hyperparameters(lr, beta1, beta2, eps, weight_decay):
    hyper = {"lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay}
    ours, theirs = nn.Parameter(start(9)), nn.Parameter(start(9))
    grads = [[g] for g in gradients(9, 5)]
    run(AdamW([ours], **hyper), [ours], grads)
    run(torch.optim.AdamW([theirs], **hyper), [theirs], grads)
    assert torch.equal(ours, theirs)


def test_defaults_are_torchs():
    ours, theirs = AdamW([nn.Parameter(start(2))]), torch.optim.AdamW([nn.Parameter(start(2))])
    assert {k: theirs.defaults[k] for k in ours.defaults} == ours.defaults


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, 50), max_size=4).map(sorted))
def test_slices_give_the_bits_of_the_whole(cuts):
    """Elementwise: the ground on which sharding an optimizer stands."""
    whole = nn.Parameter(start(50))
    bounds = list(zip([0, *cuts], [*cuts, 50]))
    parts = [nn.Parameter(start(50)[a:b].clone()) for a, b in bounds]
    grads = gradients(50, 5)
    run(AdamW([whole], **HYPER), [whole], [[g] for g in grads])
    run(AdamW(parts, **HYPER), parts, [[g[a:b] for a, b in bounds] for g in grads])
    assert torch.equal(torch.cat([p.detach() for p in parts]), whole)


def test_a_parameter_without_gradient_is_left_alone():
    """Nor does its counter move: first used at step 3, its bias correction starts there."""
    params = [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))]
    optimizer = AdamW(params, lr=0.1, weight_decay=0.1)
    one = torch.ones(1)
    run(optimizer, params, [[one, None], [one, None]])
    assert params[1].item() == 1.0
    assert not optimizer.state[params[1]]
    run(optimizer, params, [[one, one]])
    assert params[1].item() == pytest.approx(0.89, abs=1e-6)
    assert [optimizer.state[p]["step"] for p in params] == [3, 1]


def test_groups_and_closure():
    ours = [nn.Parameter(start(5)), nn.Parameter(start(3))]
    theirs = [nn.Parameter(start(5)), nn.Parameter(start(3))]

    def train(optimizer, params):
        def closure():
            optimizer.zero_grad()
            loss = sum((p**2).sum() for p in params)
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(3)]

    def groups(params):
        return [
            {"params": params[:1], "weight_decay": 0.5},
            {"params": params[1:], "weight_decay": 0.0, "lr": 1e-3},
        ]

    losses = train(AdamW(groups(ours), lr=1e-2), ours)
    assert losses == train(torch.optim.AdamW(groups(theirs), lr=1e-2), theirs)
    assert losses[0] > losses[2]
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def test_the_function_alone():
    """One step from zero moments moves each weight by lr against the sign of its gradient."""
    param, grad = torch.tensor([1.0, 1.0]), torch.tensor([3.0, -0.01])
    first, second = torch.zeros(2), torch.zeros(2)
    adamw_update(param, grad, first, second, 1, 0.1, (0.9, 0.999), 1e-12, 0.5)
    assert param.tolist() == pytest.approx([0.95 - 0.1, 0.95 + 0.1])
    assert first.tolist() == pytest.approx([0.3, -0.001])
    assert second.tolist() == pytest.approx([0.009, 1e-7])
