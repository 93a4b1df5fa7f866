"""The systems that `bench` compares: this package, and the libraries that do the same.

All train the same GPT from the same weights, with AdamW, on the same batches. A system that is not
installed, or that this PyTorch lacks, is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

import zero
from zero import comm

BASE = "DDP"  # what all are compared with
CONTROL = "DDP again"  # the same once more: how far from 1 its ratio is, is the error of the method
FLOOR = "no communication"
LR = 1e-3
DEEPSPEED_BUCKET = 6_250_000  # elements: 25 MB in fp32, as DDP and this package have it


@dataclass
class Trainer:
    """A model under one system. `step(x, y)` makes one whole training step and returns the loss.

    `model` and `opt` are what the memory meter looks at.
    """

    model: nn.Module
    opt: object
    step: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class System:
    """One row of the table. `build` makes the trainer of a model; all ranks call it together."""

    name: str
    precision: str
    build: Callable[[nn.Module], Trainer]
    ours: bool = False
    same_training: bool = True  # must its losses be those of DDP?


def systems() -> list[System]:
    """All systems that can run here, DDP first."""
    found = [
        System(BASE, "fp32", torch_ddp),
        System(CONTROL, "fp32", torch_ddp),
        System(FLOOR, "fp32", alone, same_training=False),
        System("DDP, fused AdamW", "fp32", partial(torch_ddp, fused=True)),
        System("ZeroRedundancyOptimizer", "fp32", zero_redundancy),
    ]
    found += [
        System(f"fully_shard, {name}", precision, partial(fsdp, reshard, precision))
        for precision in ("fp32", "bf16")
        for name, reshard in (("keep", False), ("reshard", True))
    ]
    if importlib.util.find_spec("deepspeed"):
        found += [
            System(f"DeepSpeed {stage}", precision, partial(deep_speed, stage, precision))
            for precision in ("fp32", "bf16")
            for stage in (1, 2, 3)
        ]
    found += [
        System(f"zero, stage {stage}", precision, partial(ours, stage, precision), ours=True)
        for precision in ("fp32", "bf16")
        for stage in (0, 1, 2, 3)
    ]
    return found


def _plain(model: nn.Module, opt: torch.optim.Optimizer, inner: nn.Module | None = None) -> Trainer:
    """The usual loop."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = model(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss

    return Trainer(inner or model, opt, step)


def ours(stage: int, precision: str, model: nn.Module) -> Trainer:
    """This package."""
    return _plain(model, zero.shard(model, stage, torch.optim.AdamW, precision=precision, lr=LR))


def alone(model: nn.Module) -> Trainer:
    """Every rank for itself: what computing alone costs. No system can be faster."""
    return _plain(model, torch.optim.AdamW(model.parameters(), lr=LR))


def torch_ddp(model: nn.Module, fused: bool = False) -> Trainer:
    """PyTorch's data parallelism, with its default AdamW or with the fused one."""
    replica = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.AdamW(model.parameters(), lr=LR, fused=fused or None)
    return _plain(replica, opt, model)


def zero_redundancy(model: nn.Module) -> Trainer:
    """PyTorch's ZeRO-1: whole parameters are divided among the ranks' optimizers."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    replica = nn.parallel.DistributedDataParallel(model)
    opt = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, lr=LR
    )
    return _plain(replica, opt, model)


def fsdp(reshard: bool, precision: str, model: nn.Module) -> Trainer:
    """PyTorch's ZeRO-3 (`reshard`), or ZeRO-2 with parameters kept from forward to backward."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    how = {
        "mesh": init_device_mesh(comm.device().type, (comm.world_size(),)),
        "reshard_after_forward": reshard,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        if precision == "bf16"
        else MixedPrecisionPolicy(),
    }
    for block in model.blocks:
        fully_shard(block, **how)
    fully_shard(model, **how)
    return _plain(model, torch.optim.AdamW(model.parameters(), lr=LR))


def deep_speed(stage: int, precision: str, model: nn.Module) -> Trainer:
    """DeepSpeed's ZeRO, with the same optimizer and without the clipping that it does by itself."""
    import deepspeed

    deepspeed.init_distributed(torch.distributed.get_backend(), auto_mpi_discovery=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": DEEPSPEED_BUCKET,
            "allgather_bucket_size": DEEPSPEED_BUCKET,
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 0.0,
        "bf16": {"enabled": precision == "bf16"},
    }
    opt = torch.optim.AdamW(model.parameters(), lr=LR)
    engine, opt, *_ = deepspeed.initialize(model=model, optimizer=opt, config=config)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        return loss

    return Trainer(model, opt, step)
