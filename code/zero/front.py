"""The front door: `zero.shard`, where one argument chooses the stage."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from .ddp import Ddp
from .optimizer import ZeroOptimizer
from .stage1 import Zero1
from .stage2 import Zero2
from .stage3 import Zero3

STAGES = {0: Ddp, 1: Zero1, 2: Zero2, 3: Zero3}


def shard(
    model: nn.Module | Iterable[nn.Parameter],
    stage: int,
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    **options,
) -> ZeroOptimizer:
    """Divide the training of `model` among the ranks; all ranks must call it together.

    stage: 0 plain data parallelism, 1 optimizer states sharded, 2 gradients too, 3 parameters
    too. optimizer: an elementwise optimizer class. options: what `ZeroOptimizer` takes (`params`,
    `precision`, `group`, `bucket_bytes`, ...) and the optimizer's own arguments (`lr`, ...).

    The model then holds rank 0's weights on every rank, and the training loop stays as it was.
    Raises ValueError for an unknown stage, and what `ZeroOptimizer` raises.
    """
    if stage not in STAGES:
        raise ValueError(f"stage={stage!r} is unknown; choose one of {', '.join(map(str, STAGES))}")
    return STAGES[stage](model, optimizer, **options)
