"""Four ranks in groups of four, of three and one, and of every second: where the checks run."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

WORLD = 4
GROUPS = {  # the world first: there no group can be forgotten
    4: [[0, 1, 2, 3]],
    3: [[0, 1, 2], [3]],
    2: [[0, 2], [1, 3]],  # no neighbours, so a rank's place is not its number modulo 2
}
SIZES = tuple(GROUPS)
SHAPES = {  # by the size of the groups
    4: [(7,), (7, 5), (2, 3, 4), (1,)],
    3: [(7,), (7, 5), (2, 3, 4), (3,), (1,), (), (0, 4)],
    2: [(7, 5), (1,)],
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def members(rank: int, size: int) -> list[int]:
    """The ranks of the group that `rank` has when groups of `size` are cut."""
    return next(ranks for ranks in GROUPS[size] if rank in ranks)


def groups_of(rank: int) -> dict[int, tuple[dist.ProcessGroup, int, int]]:
    """By the size that was cut: this rank's group, its number of ranks, and this rank's place."""
    found = {}
    for size in SIZES:
        for ranks in GROUPS[size]:
            group = dist.new_group(ranks)
            if rank in ranks:
                found[size] = group, len(ranks), ranks.index(rank)
    return found


def place(rank: int, size: int) -> tuple[int, int]:
    """Number of ranks in the group that `rank` has when groups of `size` are cut; its place."""
    ranks = members(rank, size)
    return len(ranks), ranks.index(rank)


def tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """1, 2, 3, ... in this shape, so that every number tells its place."""
    numel = torch.Size(shape).numel()
    return torch.arange(1.0, numel + 1).view(shape).to(dtype)


def part_of(x: Tensor, m: int, r: int) -> Tensor:
    """What rank r of m keeps of x."""
    length = -(-x.numel() // m)
    flat = x.reshape(-1)
    padded = torch.cat([flat, flat.new_zeros(m * length - flat.numel())])
    return padded[r * length : (r + 1) * length].clone()
