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
from zero import comm
from zero.front import STAGES
from zero.groups import check_elementwise
from zero.precision import policy

MOMENTS = {"AdamW": 2, "Adam": 2, "SGD": 1}  # fp32 values that each keeps for a weight
EXTRA = {"SGD": {"momentum": 0.9}}
BLOCK = 64  # characters that the smallest GPT looks back
MLP_SIZES = (64, 256, 256, 64)

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Kind:
    """A model that can be chosen: `block` is how many characters a GPT looks back.

    `bucket_bytes` suits the size: with a single bucket ZeRO-2 would save nothing at its peak.
    """

    build: Callable[..., nn.Module]
    block: int = 0
    bucket_bytes: int = 500_000


MODELS = {
    "gpt": Kind(zero.models.gpt_demo, block=BLOCK),
    "gpt-3m": Kind(zero.models.gpt_3m, block=128, bucket_bytes=2_000_000),
    "gpt-30m": Kind(zero.models.gpt_30m, block=128, bucket_bytes=25_000_000),
    "gpt-126m": Kind(zero.models.gpt_126m, block=128, bucket_bytes=25_000_000),
    "mlp": Kind(zero.models.MLP),
}


@dataclass(frozen=True)
class Training:
    """One way to train one model: everything that a rank must know. It travels to the ranks.

    `name` is a key of MODELS. A GPT learns `text`; the MLP, without one, learns to imitate another
    MLP with random weights.
    """

    name: str
    text: str
    steps: int
    batch: int
    precision: str
    optimizer: str
    lr: float
    seed: int
    mine: bool = False  # is it to run on the learner's pieces, AdamW's arithmetic among them?

    @property
    def kind(self) -> Kind:
        """What is known of the model."""
        return MODELS[self.name]

    @property
    def task(self) -> str:
        """What is trained, in words."""
        return "GPT on text" if self.text else "MLP on random numbers"

    def model(self) -> nn.Module:
        """The model with its start weights, the same on every rank."""
        torch.manual_seed(self.seed)
        if not self.text:
            return self.kind.build(MLP_SIZES)
        return self.kind.build(self.tokenizer().vocab_size, self.kind.block)

    def shard(
        self, model: nn.Module, stage: int, group: comm.Group = None, **options
    ) -> zero.ZeroOptimizer:
        """The model's optimizer at a stage, sharded over `group`. Collective."""
        ours = self.mine and self.optimizer == "AdamW"
        kind = zero.adam.AdamW if ours else getattr(torch.optim, self.optimizer)
        extra = EXTRA.get(self.optimizer, {})
        return zero.shard(
            model,
            stage,
            kind,
            group=group,
            precision=self.precision,
            bucket_bytes=self.kind.bucket_bytes,
            lr=self.lr,
            **extra,
            **options,
        )

    def tokenizer(self) -> zero.text.Tokenizer:
        """The characters of the whole text."""
        return zero.text.Tokenizer(self.text)

    def batches(self, rank: int, world_size: int) -> Callable[[int], Batch]:
        """This rank's batch of a step, as a function of the step."""
        if not self.text:
            return self._imitation(rank, world_size)
        tokens, _ = zero.text.split(self.tokenizer().encode(self.text))
        return zero.text.Batches(tokens, self.batch, self.kind.block, rank, world_size, self.seed)

    def validation(self, rank: int, world_size: int, count: int) -> list[Batch]:
        """At most `count` batches for this rank of the text that is held out, always the same."""
        _, tokens = zero.text.split(self.tokenizer().encode(self.text))
        batches = zero.text.Batches(tokens, self.batch, self.kind.block, rank, world_size)
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
    text = "" if args.model == "mlp" else zero.text.load(args.text)
    how = (args.steps, args.batch, args.precision, args.optimizer, args.lr, args.seed)
    asked = Training(args.model, text, *how, mine=args.mine)
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


def stages(args, default: list[int]) -> list[int]:
    """The stages that the command line asks for, or the default. Raises as `check_stages` does."""
    asked = [s for part in args.stages for s in part] if args.stages else default
    check_stages(asked)
    return asked


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
