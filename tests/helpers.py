"""The model, the data and the reference that the package's tests share.

A test of a sharded optimizer asks one question: do N ranks, each with its own rows, end with the
weights that one ordinary process gets from all rows? `reference` is that process,
`assert_equal_to_reference` is the comparison.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

ROWS = 8  # rows of one step, over all ranks
INPUTS, HIDDEN, OUTPUTS = 7, 13, 5
ADAMW = {"lr": 1e-2, "weight_decay": 0.1}
SGD = {"lr": 1e-2, "momentum": 0.9}


def m0(seed: int = 0) -> nn.Sequential:
    """M0: two layers, 174 parameters; not divisible by 4, so on 4 ranks 2 elements are padding."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS))


def rows(step: int, rank: int = 0, world_size: int = 1) -> tuple[Tensor, Tensor]:
    """D(step): this rank's share of the 8 rows of a step, inputs [8/N, 7] and targets [8/N, 5].

    Rank r of N takes rows r*8/N up to (r+1)*8/N. For N = 3 the shares are 2, 3, 3 rows, so a mean
    over ranks is then not the mean over rows: use `even_rows` for such world sizes.
    """
    x, y = _draw(step, ROWS)
    mine = slice(rank * ROWS // world_size, (rank + 1) * ROWS // world_size)
    return x[mine], y[mine]


def even_rows(step: int, rank: int = 0, world_size: int = 1, per_rank: int = 2):
    """Like `rows`, for any world size: `per_rank` rows for each rank. Give the reference
    `even_rows(step, per_rank=per_rank * world_size)`, which is the same rows joined."""
    x, y = _draw(step, per_rank * world_size)
    mine = slice(rank * per_rank, (rank + 1) * per_rank)
    return x[mine], y[mine]


def _draw(step: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + 10 * step)
    x = torch.randn(count, INPUTS, generator=generator)
    y = torch.randn(count, OUTPUTS, generator=generator)
    return x, y


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean squared error, the mean taken over all elements."""
    return nn.functional.mse_loss(model(x), y)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Callable[[int], tuple[Tensor, Tensor]],
    steps: Iterable[int] | int = 4,
    *,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of,
    before_step: Callable[[torch.optim.Optimizer, int], None] | None = None,
) -> list[float]:
    """The loop that every test runs, plain or sharded. `before_step(optimizer, step)` comes between
    backward and step: clip, change the learning rate, look. Returns the loss of each step."""
    losses = []
    for step in range(steps) if isinstance(steps, int) else steps:
        value = loss(model, *data(step))
        value.backward()
        if before_step is not None:
            before_step(optimizer, step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    return losses


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters by name: what a rank returns to the test."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def reference(
    steps: Iterable[int] | int = 4,
    make: Callable[[], nn.Module] = m0,
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    *,
    data: Callable[[int], tuple[Tensor, Tensor]] = rows,
    groups: Callable[[nn.Module], list[dict]] | None = None,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of,
    before_step: Callable[[torch.optim.Optimizer, int], None] | None = None,
    **hyper,
) -> dict[str, Tensor]:
    """REF: the weights that one ordinary process has after `steps` on all rows.

    Without `hyper`, AdamW gets lr 1e-2 and weight decay 0.1, SGD gets lr 1e-2 and momentum 0.9.
    `groups(model)` gives parameter groups in place of `model.parameters()`.
    """
    if not hyper:
        hyper = SGD if optimizer is torch.optim.SGD else ADAMW
    model = make()
    params = groups(model) if groups is not None else model.parameters()
    train(model, optimizer(params, **hyper), data, steps, loss=loss, before_step=before_step)
    return weights(model)


def assert_same_on_all_ranks(by_rank: list[dict[str, Tensor]]) -> None:
    """Every tensor is bitwise the same on every rank."""
    first = by_rank[0]
    for rank, mine in enumerate(by_rank):
        assert mine.keys() == first.keys(), f"rank {rank} has {sorted(mine)}"
        for name, tensor in mine.items():
            assert torch.equal(tensor, first[name]), f"{name}: rank {rank} differs from rank 0"


def assert_equal_to_reference(
    by_rank: list[dict[str, Tensor]], expected: dict[str, Tensor], atol: float = 1e-6
) -> None:
    """EQ: bitwise the same on all ranks, and within `atol` of the reference by name."""
    assert_same_on_all_ranks(by_rank)
    mine = by_rank[0]
    assert mine.keys() == expected.keys(), f"{sorted(mine)} against {sorted(expected)}"
    for name, want in expected.items():
        have = mine[name]
        assert have.shape == want.shape, f"{name}: {tuple(have.shape)}, not {tuple(want.shape)}"
        if want.numel():
            worst = (have.double() - want.double()).abs().max().item()
            assert worst < atol, f"{name} differs from the reference by {worst:.3g}"
