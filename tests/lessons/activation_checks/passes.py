"""Trainings with dropout on groups of ranks, with and without checkpoints: what each rank does.

Nothing of the grader is imported here, so ranks start faster.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from activation_checks import groups
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
    if optimizer == "sgd":
        opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    else:
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    torch.manual_seed(7)
    for step in range(STEPS):
        model(rows(step, number)).backward()
        opt.step()
        opt.zero_grad()
    return {n: p.detach().clone() for n, p in model.named_parameters()}, torch.rand(1)


def kept_and_sent(options: dict, number: int) -> tuple[int, int]:
    """Bytes that one more block keeps after forward, and that it sends in a whole step."""
    kept, sent = [], []
    for blocks in (1, 2):
        model, x = Stack(options, blocks).eval(), rows(0, number).requires_grad_()
        with Traffic() as traffic, Meter(model) as meter:
            meter.watch(x)
            loss = model(x)
            kept.append(meter.live()["activations"])
            loss.backward()
        sent.append(traffic.bytes(floating=True))
    return kept[1] - kept[0], sent[1] - sent[0]


def in_groups(rank: int, world_size: int, offload: bool) -> dict[int, dict]:
    """By the size of the groups: weights with and without checkpoints, bytes kept and sent."""
    found = {}
    for size, (group, _, _) in groups.groups_of(rank).items():
        number = groups.members(rank, size)[0]  # the group's first rank: all of it have its rows
        options = {"partition": group, **({"offload": FileStore()} if offload else {})}
        found[size] = {
            "trained": trained(options, OPTIMIZER[size], number),
            "plain": trained(None, OPTIMIZER[size], number),
            "bytes": kept_and_sent(options, number),
        }
    return found
