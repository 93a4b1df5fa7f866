"""What every exercise of lesson 06 ends with: trainings with dropout, bit for bit as without.

Four ranks in groups of one to four. All ranks of a group compute the same, as they do in the
replicated parts of a tensor-parallel model; different groups have different rows.
"""

from __future__ import annotations

import gc
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activation_checks import groups
from course.checks import compare_tensors, fail, on_ranks, require
from course.training import OPTIMIZERS, weights
from zero.activations import checkpoint
from zero.meter import Meter
from zero.stores import FileStore
from zero.traffic import Traffic

VALUES = 35  # of a block's input; not divisible by 2, 3 or 4
BLOCKS = 2
STEPS = 2
OPTIMIZER = {4: "sgd", 3: "adamw", 2: "sgd"}  # by the size of the groups


class Block(nn.Module):
    """5 -> 11 -> 5 with dropout."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 11), nn.Linear(11, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.dropout(torch.tanh(self.up(x)), 0.5, self.training))


class Stack(nn.Module):
    """Blocks, checkpointed with these options; None: not checkpointed."""

    def __init__(self, options: dict | None, blocks: int = BLOCKS):
        super().__init__()
        torch.manual_seed(5)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if self.options is None else checkpoint(block, x, **self.options)
        return x.square().mean()


def rows(step: int, number: int) -> Tensor:
    draw = torch.Generator().manual_seed(100 * step + number)
    return torch.randn(7, 5, generator=draw)


def trained(options: dict | None, optimizer: str, number: int) -> tuple[dict[str, Tensor], Tensor]:
    """The weights after a few steps, and the random number that would be drawn next."""
    model = Stack(options)
    kind, hyper = OPTIMIZERS[optimizer]
    opt = kind(model.parameters(), **hyper)
    torch.manual_seed(7)
    for step in range(STEPS):
        model(rows(step, number)).backward()
        opt.step()
        opt.zero_grad()
    return weights(model), torch.rand(1)


def kept_and_sent(options: dict, number: int) -> tuple[int, int]:
    """Bytes that one more block keeps after forward, and that it sends in a whole step."""
    kept, sent = [], []
    for blocks in (1, 2):
        model, x = Stack(options, blocks).eval(), rows(0, number).requires_grad_()
        with Traffic() as traffic, Meter(model) as meter:
            meter.watch(x)
            loss = model(x)
            gc.collect()  # what only circles hold is nobody's
            kept.append(meter.live()["activations"])
            loss.backward()
        sent.append(traffic.bytes(floating=True))
    return kept[1] - kept[0], sent[1] - sent[0]


def in_groups(rank: int, world_size: int, offload: bool) -> dict[int, dict]:
    """By the size of the groups: weights with and without checkpoints, bytes kept and sent."""
    found = {}
    for size, (group, _, place) in groups.groups_of(rank).items():
        number = rank - place  # the first rank of the group: what tells replicas apart
        options = {"partition": group, **({"offload": FileStore()} if offload else {})}
        found[size] = {
            "trained": trained(options, OPTIMIZER[size], number),
            "plain": trained(None, OPTIMIZER[size], number),
            "bytes": kept_and_sent(options, number),
        }
    return found


@cache
def ran(path: str, offload: bool) -> list[dict[int, dict]]:
    """By rank, with the piece `path`."""
    return on_ranks(in_groups, groups.WORLD, offload)


def trains(path: str, offload: bool = False) -> None:
    """Fail unless all groups end with the bits that they have without checkpoints."""
    for rank, by_size in enumerate(ran(path, offload)):
        for size, seen in by_size.items():
            where = f"rank {rank}, in a group of {groups.place(rank, size)[0]},"
            _same_bits(seen["plain"], seen["trained"], where, OPTIMIZER[size])


def _same_bits(plain: tuple, mine: tuple, where: str, optimizer: str) -> None:
    for name, expected in plain[0].items():
        if not torch.equal(expected, mine[0][name]):
            what = f"{name} after {STEPS} steps of {optimizer} ({where} dropout on)"
            compare_tensors(expected, mine[0][name], what, atol=0.0)
            fail(f"{what}: right but for rounding; the bits must be those without checkpoints.")
    text = f"After the training ({where} {optimizer}) the program draws other random numbers."
    require(torch.equal(plain[1], mine[1]), text, "random-not-put-back")


def costs(path: str, offload: bool = False) -> None:
    """Fail unless a rank keeps and sends what partitioning should, no byte more."""
    for rank, by_size in enumerate(ran(path, offload)):
        for size, seen in by_size.items():
            m, _ = groups.place(rank, size)
            part = 4 * -(-VALUES // m)
            kept, sent = seen["bytes"]
            text = f"Rank {rank} in a group of {m} keeps {kept} bytes of a block's input"
            require(kept == (0 if offload else part), f"{text}, it should be {part}.", "kept")
            text = f"Rank {rank} in a group of {m} sends {sent} bytes for a block"
            require(sent == part * (m - 1), f"{text}, it should be {part * (m - 1)}.", "sent")
