"""What the tests of checkpoints share: models with every kind of parameter, and states by name."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import helpers
import zero
from zero import states


def on_ranks(fn: Callable, world_size: int, *args) -> list:
    """`helpers.on_ranks` with the patience that a busy disk asks for."""
    return helpers.on_ranks(fn, world_size, *args, timeout=50.0)


ROWS = 60  # rows of a step over all ranks: as many for each of 1, 2, 3, 4, 5 ranks


def rows(step: int, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
    """This rank's share of a step's 60 rows; together the same rows for any world size."""
    return helpers.even_rows(step, rank, world_size, ROWS // world_size)


class Few(nn.Module):
    """Three elements in all: on 4 and 5 ranks some own nothing."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return (x[:, :3] * self.scale).sum(1, keepdim=True).expand(-1, helpers.OUTPUTS)


class Mixed(nn.Module):
    """Tied, frozen, unused, empty and scalar parameters, and one that ends inside of a shard."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(7, 7)
        self.frozen = nn.Linear(7, 7)
        self.frozen.requires_grad_(False)
        self.second = nn.Linear(7, 7)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(3, 11)
        self.empty = nn.Linear(7, 0, bias=False)
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("table", torch.arange(3.0), persistent=False)
        self.norm = nn.BatchNorm1d(7, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.frozen(torch.tanh(self.first(x))))
        y = self.second(y) * self.gain + 0 * self.empty(x).sum()
        return (y + 0 * self.norm(x.float()).to(y.dtype))[:, : helpers.OUTPUTS]


class Sized(nn.Module):
    """`numel` parameters: a vector that M0's outputs are shifted by, and M0 itself."""

    def __init__(self, numel: int):
        super().__init__()
        self.inner = helpers.m0()
        self.shift = nn.Parameter(torch.linspace(-1, 1, numel - 174)) if numel > 174 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return y if self.shift is None else y + self.shift.sum()


class Layers(nn.Module):
    """M0's layers in a ModuleList, so that stage 3 has several units."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList([nn.Linear(7, 13), nn.Linear(13, 13), nn.Linear(13, 5)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def interleaved_groups(model: nn.Module) -> list[dict]:
    """Weights decay and biases do not, at another rate: the groups alternate in every buffer."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [
        {"params": matrices, "weight_decay": 0.5, "lr": 1e-2},
        {"params": others, "weight_decay": 0.0, "lr": 1e-3},
    ]


# name: (model, groups). Few and Mixed have parameters that are not as one would expect.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable | None]] = {
    "m0": (helpers.m0, None),
    "groups": (Layers, interleaved_groups),
    "few": (Few, None),
    "mixed": (Mixed, None),
    "175": (lambda: Sized(175), None),
    "176": (lambda: Sized(176), None),
}


def build(rank: int, world_size: int, model: str, stage: int, **options):
    """A model of MODELS and its optimizer at a stage."""
    make, groups = MODELS[model]
    return helpers.sharded(rank, world_size, stage, make=make, groups=groups, **options)


def kept(opt: zero.ZeroOptimizer) -> list[tuple]:
    """Copies of what this rank would save: (name, offset, tensors, numbers) of every piece."""
    return [
        (p.name, p.offset, {kind: t.clone() for kind, t in p.tensors.items()}, dict(p.numbers))
        for p in states.pieces(opt)
    ]


def joined(by_rank: list[list[tuple]]) -> dict[str, tuple[dict, dict]]:
    """The pieces of all ranks put together: flat tensors by kind, and numbers, of each name."""
    found: dict[str, list] = {}
    for piece in sorted((p for pieces in by_rank for p in pieces), key=lambda p: p[1]):
        found.setdefault(piece[0], []).append(piece)
    whole = {}
    for name, parts in found.items():
        assert all(part[3] == parts[0][3] for part in parts), f"counters of {name} differ"
        kinds = parts[0][2].keys()
        whole[name] = {k: torch.cat([part[2][k] for part in parts]) for k in kinds}, parts[0][3]
    return whole


def assert_same_states(by_rank: list[list[tuple]], expected: list[list[tuple]]) -> None:
    """Bitwise the same weights, moments and counters by name, however they are divided."""
    mine, other = joined(by_rank), joined(expected)
    assert mine.keys() == other.keys()
    for name, (tensors, numbers) in other.items():
        assert mine[name][1] == numbers, name
        assert mine[name][0].keys() == tensors.keys(), name
        for kind, tensor in tensors.items():
            assert torch.equal(mine[name][0][kind], tensor), f"{kind} of {name}"


def rewrite(folder: Path, change: Callable[[dict], object]) -> None:
    """Change a manifest and seal it again: wrong, but with a right checksum."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content.pop("sha256", None)
    change(content)
    path.write_bytes(zero.manifest.to_bytes(content))
