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
ONLY_STAGE_3 = ("units", "init", "offload_params")  # options about parameters that are sharded


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
    Raises ValueError for an unknown stage or an option that it does not have, and what
    `ZeroOptimizer` raises.
    """
    if stage not in STAGES:
        raise ValueError(f"stage={stage!r} is unknown; choose one of {', '.join(map(str, STAGES))}")
    for name in ONLY_STAGE_3:
        if stage != 3 and options.get(name) is not None:
            raise ValueError(
                f"{name} is for stage 3, which shards the parameters; leave it out at stage {stage}"
            )
    return STAGES[stage](model, optimizer, **options)
