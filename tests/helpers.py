"""The model, the data and the reference that the package's tests share.

A test of a sharded optimizer asks one question: do N ranks, each with its own rows, end with the
weights that one ordinary process gets from all rows? `reference` is that process,
`assert_equal_to_reference` is the comparison.
"""

import contextlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

import zero
from zero.front import STAGES as CLASSES

STAGES = tuple(sorted(CLASSES))

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


def loss_in(opt: zero.ZeroOptimizer) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """`loss_of` for inputs in the optimizer's precision, scaled where it asks for that."""
    dtype = opt.precision.param_dtype or torch.float32
    return lambda model, x, y: opt.scale(nn.functional.mse_loss(model(x.to(dtype)).float(), y))


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


# --- on several ranks ----------------------------------------------------------------------------


def on_ranks(fn: Callable, world_size: int, *args, timeout: float = 45.0) -> list:
    """`zero.launch` without output."""
    return zero.launch(fn, world_size, *args, timeout=timeout, quiet=True)


class Together:
    """Many small cases in one launch, since starting ranks costs more than a case does.

    `cases` are the arguments of all cases. `together(world_size, *case)` returns, by rank, what
    `scenario(rank, world_size, *case)` returned. The first call for a world size runs all cases;
    if that fails, each case gets a launch of its own, so that one fault hides no other.
    """

    def __init__(self, scenario: Callable, cases: Iterable[tuple]):
        self.scenario, self.cases = scenario, list(cases)
        self.results: dict[int, list[list]] = {}

    def __call__(self, world_size: int, *case) -> list:
        if world_size not in self.results:
            with contextlib.suppress(zero.RankError):
                by_rank = on_ranks(_run_all, world_size, self.scenario, self.cases)
                self.results[world_size] = list(zip(*by_rank))
            self.results.setdefault(world_size, [])
        if not self.results[world_size]:
            return on_ranks(self.scenario, world_size, *case)
        return list(self.results[world_size][self.cases.index(case)])


def _run_all(rank: int, world_size: int, scenario: Callable, cases: list[tuple]) -> list:
    return [scenario(rank, world_size, *case) for case in cases]


def sharded(
    rank: int,
    world_size: int,
    stage: int,
    *,
    make: Callable[[], nn.Module] = m0,
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    groups: Callable[[nn.Module], list[dict]] | None = None,
    **options,
) -> tuple[nn.Module, zero.ZeroOptimizer]:
    """The model and optimizer of `reference`, sharded at `stage`."""
    model = make()
    if groups is not None:
        options["params"] = groups(model)
    if "lr" not in options:
        options |= SGD if optimizer is torch.optim.SGD else ADAMW
    return model, zero.shard(model, stage, optimizer, **options)


def train_sharded(
    model: nn.Module,
    opt: zero.ZeroOptimizer,
    steps: Iterable[int] | int = 4,
    data: Callable[..., tuple[Tensor, Tensor]] = rows,
    **how,
) -> list[float]:
    """`train` on this rank's share of the data."""
    return train(model, opt, lambda step: data(step, opt.rank, opt.world_size), steps, **how)


def full_weights(model: nn.Module, opt: zero.ZeroOptimizer) -> dict[str, Tensor]:
    """Copies of the whole parameters by name; stage 3 gathers them, so all ranks must call it."""
    with opt.full_params():
        return weights(model)
