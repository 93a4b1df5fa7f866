"""ZeRO from scratch: data-parallel training whose memory is divided among the ranks.

    import zero
    opt = zero.shard(model, stage=2, lr=3e-4, weight_decay=0.1, precision="bf16")

`shard` is the front door; each stage is one file (`ddp`, `stage1`, `stage2`, `stage3`). Modules are
imported when they are first used, as `zero.models` or `zero.checkpoint`.
"""

import importlib

from .launch import RankError, launch

__all__ = ["RankError", "ZeroOptimizer", "launch", "shard"]

_HOMES = {"shard": "front", "ZeroOptimizer": "optimizer"}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
