"""ZeRO from scratch: data-parallel training whose memory is divided among the ranks.

    import zero
    opt = zero.shard(model, stage=2, lr=3e-4, weight_decay=0.1, precision="bf16")

`shard` is the front door; each stage is one file (`ddp`, `stage1`, `stage2`, `stage3`).
"""

from . import batches, comm, flat, formulas, meter, models, text
from .front import shard
from .launch import RankError, launch
from .optimizer import ZeroOptimizer

__all__ = [
    "RankError",
    "ZeroOptimizer",
    "batches",
    "comm",
    "flat",
    "formulas",
    "launch",
    "meter",
    "models",
    "shard",
    "text",
]
