"""From the command line to what is trained: optimizer, model, data. Bad input is refused here.

Everything is checked before the first rank starts, so that a mistake is one line and not the
failure of four processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import zero
from demos.arguments import UsageError
from zero.front import STAGES
from zero.groups import check_elementwise
from zero.precision import policy

MOMENTS = {"AdamW": 2, "Adam": 2, "SGD": 1}  # fp32 values that each keeps for a weight
EXTRA = {"SGD": {"momentum": 0.9}}
BLOCK = 64  # characters that the GPT looks back
BUCKET_BYTES = 500_000  # small, as the models are: with one bucket ZeRO-2 would save no peak
MLP_SIZES = (64, 256, 256, 64)

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Training:
    """One way to train one model: everything that a rank must know. It travels to the ranks.

    `text` is None for the MLP, which learns to imitate another MLP with random weights.
    """

    text: str | None
    steps: int
    batch: int
    precision: str
    optimizer: str
    lr: float
    seed: int

    @property
    def task(self) -> str:
        """What is trained, in words."""
        return "MLP on random numbers" if self.text is None else "GPT on text"

    def model(self) -> nn.Module:
        """The model with its start weights, the same on every rank."""
        torch.manual_seed(self.seed)
        if self.text is None:
            return zero.models.MLP(MLP_SIZES)
        return zero.models.gpt_demo(self.tokenizer().vocab_size, BLOCK)

    def shard(self, model: nn.Module, stage: int) -> zero.ZeroOptimizer:
        """The model's optimizer at a stage. Collective."""
        kind = getattr(torch.optim, self.optimizer)
        extra = EXTRA.get(self.optimizer, {})
        return zero.shard(
            model,
            stage,
            kind,
            precision=self.precision,
            bucket_bytes=BUCKET_BYTES,
            lr=self.lr,
            **extra,
        )

    def tokenizer(self) -> zero.text.Tokenizer:
        """The characters of the whole text."""
        return zero.text.Tokenizer(self.text)

    def batches(self, rank: int, world_size: int) -> Callable[[int], Batch]:
        """This rank's batch of a step, as a function of the step."""
        if self.text is None:
            return self._imitation(rank, world_size)
        tokens, _ = zero.text.split(self.tokenizer().encode(self.text))
        return zero.text.Batches(tokens, self.batch, BLOCK, rank, world_size, self.seed)

    def validation(self, rank: int, world_size: int, count: int) -> list[Batch]:
        """At most `count` batches for this rank of the text that is held out, always the same."""
        _, tokens = zero.text.split(self.tokenizer().encode(self.text))
        batches = zero.text.Batches(tokens, self.batch, BLOCK, rank, world_size)
        return [batches(step) for step in range(min(count, batches.steps_per_epoch))]

    def _imitation(self, rank: int, world_size: int) -> Callable[[int], Batch]:
        torch.manual_seed(self.seed + 1)
        teacher = zero.models.MLP(MLP_SIZES)

        dtype = policy(self.precision).param(torch.float32)

        @torch.no_grad()
        def batch(step: int) -> Batch:
            generator = torch.Generator().manual_seed(self.seed + step)
            x = torch.randn(self.batch * world_size, MLP_SIZES[0], generator=generator)
            mine = x.chunk(world_size)[rank]
            return mine.to(dtype), teacher(mine)

        return batch


def training(args, ranks: int) -> Training:
    """What the command line asks for. Raises UsageError or zero.text.TextError."""
    check_optimizer(args.optimizer)
    text = None if getattr(args, "model", "gpt") == "mlp" else zero.text.load(args.text)
    asked = Training(
        text, args.steps, args.batch, args.precision, args.optimizer, args.lr, args.seed
    )
    asked.batches(0, ranks)  # refuses a text that is too short for one step
    return asked


def check_optimizer(name: str) -> None:
    """Raise UsageError for an optimizer that cannot be sharded, or is not offered here."""
    if name in MOMENTS:
        return
    known = getattr(torch.optim, name, None)
    if isinstance(known, type) and issubclass(known, torch.optim.Optimizer):
        try:
            check_elementwise(known)
        except ValueError as error:
            raise UsageError(str(error)) from None
    raise UsageError(f"unknown optimizer {name!r}; choose one of {', '.join(MOMENTS)}")


def check_stages(stages: list[int]) -> None:
    """Raise UsageError for a stage that the package does not have, or one that comes twice."""
    for stage in stages:
        if stage not in STAGES:
            known = ", ".join(map(str, STAGES))
            raise UsageError(f"unknown stage {stage}; choose from {known}")
    if len(set(stages)) < len(stages):
        raise UsageError(f"stages {stages}: each only once, please")


def refuse_torchrun(command: str) -> None:
    """Raise UsageError under torchrun, for a command that starts ranks of its own."""
    if under_torchrun():
        raise UsageError(f"{command} starts its own ranks; run it without torchrun")


def under_torchrun() -> bool:
    """Is this process one of the ranks already?"""
    return "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE"} <= os.environ.keys()


def stage_name(stage: int) -> str:
    """What the tables call it."""
    return f"ZeRO-{stage}" if stage else "DDP"


def rank_count(world_size: int) -> str:
    """ "1 rank", "4 ranks"."""
    return "1 rank" if world_size == 1 else f"{world_size} ranks"
