"""What every exercise of lesson 06 ends with: trainings with dropout, bit for bit as without.

Four ranks in groups of one to four. All ranks of a group compute the same, as they do in the
replicated parts of a tensor-parallel model; different groups have different rows.
"""

from __future__ import annotations

from functools import cache

import torch

from activation_checks import groups
from activation_checks.passes import OPTIMIZER, STEPS, VALUES, in_groups
from course.checks import compare_tensors, fail, on_ranks, require


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
