"""What the checks of lesson 05 do with whole passes on each rank: who is in memory, and when."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import zero
from course import training
from zero.meter import Meter
from zero.traffic import Traffic
from zero.unit import State, Unit

WIDTH = 6


class NotHere(RuntimeError):
    """A unit's backward was about to read parameters that are not in memory: better stop."""


class Watched(Unit):
    """A unit that writes every change of its state into the list `changes`."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "state":
            self.changes.append((self.name, value))


class Shy(nn.Module):
    """A frozen layer, then a trainable one: the frozen weight is read after all gradients came."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.look = lambda *_: None

    def forward(self, x: Tensor) -> Tensor:
        h = self.frozen(x)
        if h.grad_fn is not None:
            h.grad_fn.register_prehook(self.look)
        return self.up(torch.tanh(h))


class TwoInputs(nn.Module):
    """A frozen weight that both inputs meet: it is read until both have their gradients."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(WIDTH))
        self.look = lambda *_: None

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        products = [x @ self.frozen for x in pair]
        for product in products:
            product.grad_fn.register_prehook(self.look)
        return products[0] * products[1] + self.bias


class Fork(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(x), torch.cos(x)


class Borrower(nn.Module):
    """Reads the frozen weight of another unit, after the last trainable one has its gradient."""

    def __init__(self, owner: nn.Linear):
        super().__init__()
        self.weight, self.bias = owner.weight, owner.bias
        self.extra = nn.Parameter(torch.ones(WIDTH))
        self.look = lambda *_: None

    def forward(self, x: Tensor) -> Tensor:
        product = x @ self.weight.t()
        product.grad_fn.register_prehook(self.look)
        return product * self.extra + self.bias


class OwnerUnused(nn.Module):
    """A unit that only lends its parameters, a frozen weight and a trainable bias."""

    def __init__(self):
        super().__init__()
        self.first, self.owner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.owner.weight.requires_grad_(False)
        self.last = Borrower(self.owner)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def chain() -> nn.Module:
    """Four units, one after the other."""
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)])


def tied() -> nn.Module:
    """Two units that share one weight: the first owns it, the second needs it."""
    first, last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
    last.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)


def frozen_owner() -> nn.Module:
    """As `tied`, and the shared weight is frozen: its owner has no backward of its own."""
    model = tied()
    model[0].weight.requires_grad_(False)
    return model


def mixed() -> nn.Module:
    """Units with trainable, some frozen, and only frozen parameters."""
    frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Shy(), frozen, nn.Linear(WIDTH, WIDTH))


def two_inputs() -> nn.Module:
    """A unit whose two inputs both need a gradient, and its frozen weight."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Fork(), TwoInputs())


MODELS = {
    "chain": chain,
    "tied": tied,
    "mixed": mixed,
    "frozen_owner": frozen_owner,
    "two_inputs": two_inputs,
    "owner_unused": OwnerUnused,
}


def look_at_passes(rank: int, world_size: int) -> dict[str, dict]:
    """Three backward passes through each model; what was seen, by name."""
    return {name: _watch(make()) for name, make in MODELS.items()}


def _watch(model: nn.Module) -> dict:
    opt = zero.shard(model, 3, torch.optim.SGD, lr=0.0)
    found = {"begun": [], "missing": "", "left open": [], "most": 0, "early": ""}
    changes: list[tuple[str, State]] = []
    for unit in opt.units:
        object.__setattr__(unit, "changes", changes)
        unit.__class__ = Watched
        unit.module.register_forward_hook(_observer(opt, unit, found, changes))
        if hasattr(unit.module, "look"):
            unit.module.look = _still_full(unit, found)
    end = opt.backward_end.then

    def look_and_end() -> None:
        found["left open"] = [u.name for u in opt.units if u.open]
        end()

    opt.backward_end.then = look_and_end
    try:
        for _ in range(3):
            found["begun"], changes[:] = [], []
            model(torch.randn(2, WIDTH)).sum().backward()
            found["left"] = [u.name for u in opt.units if u.state is not State.SHARDED]
            found["order"] = [u.name for u in opt.prefetcher.orders["backward"]]
            found["most"] = max(found["most"], _most(changes))
            opt.zero_grad()
    except NotHere:  # what is on its way must not arrive in the next model's messages
        for unit in opt.units:
            while unit.works:
                unit.works.pop().wait()
        opt.flight.land()
    return found


def _observer(opt: zero.ZeroOptimizer, unit: Unit, found: dict, changes: list):
    def after_forward(module, args, output):
        def begins(grad):
            if not found["begun"]:
                found["gathered"] = [n for n, state in changes if state is State.GATHERING]
            states = {u.name: u.state for u in opt.units}
            found["begun"].append((unit.name, states, [u.open for u in unit.needs]))
            for u in unit.needs:
                if u.state is not State.FULL:
                    found["missing"] = (unit.name, u.name, u.state)
                    raise NotHere

        if output.requires_grad:
            output.register_hook(begins)

    return after_forward


def _still_full(unit: Unit, found: dict):
    def look(*_) -> None:
        for u in unit.needs:
            if u.state is not State.FULL:
                found["early"] = u.name
                raise NotHere

    return look


def _most(changes: list[tuple[str, State]]) -> int:
    """The most units that had memory at one time."""
    most, here = 0, set()
    for name, state in changes:
        (here.discard if state is State.SHARDED else here.add)(name)
        most = max(most, len(here))
    return most


# --- trainings -----------------------------------------------------------------------------------


def deep(seed: int = 0) -> nn.Module:
    """Three units; the second has a frozen bias, and so two buckets."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 11), nn.Tanh(), nn.Linear(11, 5)
    )
    model[2].bias.requires_grad_(False)
    return model


TRAINED, FROZEN = [7 * 13 + 13, 13 * 11, 11 * 5 + 5], [11]


def train(rank: int, world_size: int) -> dict:
    """Trainings at stage 3 with both optimizers, and what one step costs."""
    found = {name: training.train(rank, 3, name, make=deep) for name in training.OPTIMIZERS}
    return found | {"cost": _cost(rank)}


def _cost(rank: int) -> dict:
    model = deep()
    opt = zero.shard(model, 3, torch.optim.AdamW, lr=0.0)
    for step in range(2):
        x, y = training.batch(step, rank)
        with Meter(model, opt) as meter, Traffic() as traffic:
            nn.functional.mse_loss(model(x), y).backward()
            whole = [b.grad is not None for b in opt.buckets]
            opt.step()
            opt.zero_grad()
            rest = meter.live()["parameters"]
    return {
        "sent": traffic.bytes(floating=True),
        "rest": rest,
        "most": meter.peaks()["parameters"],
        "whole gradients": sum(whole),
    }
