"""Small trainings for graders: on one process, the oracle, and on real ranks.

The same model (174 parameters: not divisible by 4), on every rank other rows and another start,
since rank 0's weights must win. SGD with momentum shows a wrong scale of the gradients, which Adam
hides; AdamW shows lost states and lost weight decay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from course.checks import Recogniser, compare_tensors, fail, on_ranks

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
}
ROWS = 2  # a step and rank
STEPS = 4


def small_model(seed: int = 0) -> nn.Module:
    """Two linear layers, 174 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5))


def batch(step: int, ranks: int | list[int]) -> tuple[Tensor, Tensor]:
    """The rows of one rank in one step, or those of several ranks joined: inputs and targets."""
    if isinstance(ranks, int):
        draw = torch.Generator().manual_seed(1000 * step + ranks)
        x = torch.randn(ROWS, 7, generator=draw) * (1 + ranks)
        return x, torch.randn(ROWS, 5, generator=draw)
    parts = [batch(step, rank) for rank in ranks]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def oracle(
    optimizer: str,
    world_size: int,
    *,
    steps: int = STEPS,
    make: Callable[[int], nn.Module] = small_model,
    groups: Callable[[nn.Module], list[dict]] | None = None,
    **changed,
) -> dict[str, Tensor]:
    """The weights that one ordinary process has after ``steps`` on the rows of all ranks.

    ``optimizer`` names one of OPTIMIZERS; ``changed`` are arguments of it to change, so that a
    grader can compute what a known mistake gives (``weight_decay=0.0``). ``groups(model)`` gives
    parameter groups.
    """
    model = make(0)
    kind, hyper = OPTIMIZERS[optimizer]
    params = groups(model) if groups else model.parameters()
    torch_optimizer = kind(params, **{**hyper, **changed})
    for step in range(steps):
        x, y = batch(step, list(range(world_size)))
        nn.functional.mse_loss(model(x), y).backward()
        torch_optimizer.step()
        torch_optimizer.zero_grad()
    return weights(model)


@dataclass
class Run:
    """What one rank of a training looked like from outside.

    ``sent`` are the floating-point bytes that it sent in the last step, ``live`` the bytes alive
    after it by kind, ``total`` all of them together, ``peak`` the most during it.
    """

    weights: dict[str, Tensor]
    losses: list[float]
    sent: int
    live: dict[str, int]
    total: int
    peak: int


def train_on_ranks(
    stage: int,
    optimizer: str,
    world_size: int,
    *,
    steps: int = STEPS,
    make: Callable[[int], nn.Module] = small_model,
    **options,
) -> list[Run]:
    """The same training with ``zero.shard`` on real ranks; ``options`` go to ``zero.shard``.

    Rank r starts from ``make(r)``, so the weights are right only if rank 0's are copied first.
    """
    return on_ranks(_train, world_size, stage, optimizer, steps, make, options)


def compare_weights(
    expected: dict[str, Tensor],
    runs: list[Run],
    *,
    atol: float = 1e-6,
    known: Callable[[str], list[Recogniser]] = lambda name: [],
) -> None:
    """Fail unless every rank has the expected weights; ``known(name)`` gives recognisers."""
    for rank, run in enumerate(runs):
        for name, tensor in expected.items():
            if name not in run.weights:
                fail(f"rank {rank} has no parameter {name}", "parameter-lost")
            what = f"{name} on rank {rank} after {len(run.losses)} steps"
            compare_tensors(tensor, run.weights[name], what, atol=atol, known=known(name))


def _train(rank, world_size, stage, optimizer, steps, make, options) -> Run:
    return train(rank, stage, optimizer, steps=steps, make=make, **options)


def train(
    rank: int,
    stage: int,
    optimizer: str,
    *,
    steps: int = STEPS,
    make: Callable[[int], nn.Module] = small_model,
    groups: Callable[[nn.Module], list[dict]] | None = None,
    **options,
) -> Run:
    """What :func:`train_on_ranks` does on each rank, for a check with several trainings a launch.

    Call it on all ranks together. ``groups(model)`` gives parameter groups.
    """
    import zero
    from zero.meter import Meter
    from zero.traffic import Traffic

    model = make(rank)
    kind, hyper = OPTIMIZERS[optimizer]
    if groups:
        options["params"] = groups(model)
    sharded = zero.shard(model, stage, kind, **{**hyper, **options})
    losses = []

    def one_step(step: int) -> None:
        x, y = batch(step, rank)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        sharded.step()
        sharded.zero_grad()
        losses.append(loss.item())

    for step in range(steps - 1):
        one_step(step)
    with Meter(model, sharded) as meter, Traffic() as traffic:
        one_step(steps - 1)
        live, total, peak = meter.live(), meter.current, meter.peak
    with sharded.full_params():
        final = weights(model)
    return Run(final, losses, traffic.bytes(floating=True), live, total, peak)
