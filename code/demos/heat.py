"""What one rank does for `bench`: build the systems, then train them in turn, round by round.

The turns of a round are drawn anew each time, on all ranks alike, so that nobody always follows the
same one and finds the caches as that one leaves them.

The first rounds are not timed: states are made, DDP arranges its buckets anew, and bytes are
counted, which slows a step down.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

import zero
from demos.systems import System, Trainer
from zero import comm
from zero.meter import Meter
from zero.traffic import Traffic


@dataclass(frozen=True)
class Case:
    """One size of model, and the ranks and sequences a rank that it is trained with."""

    build: Callable
    ranks: int
    batch: int

    def model(self, text: str) -> zero.models.GPT:
        """The model with its start weights, the same for every system and rank."""
        torch.manual_seed(0)
        return self.build(zero.text.Tokenizer(text).vocab_size)

    def batches(self, text: str, rank: int, world_size: int) -> zero.text.Batches:
        """The rank's part of the text, as long as the model looks back."""
        tokens = zero.text.Tokenizer(text).encode(text)
        with torch.device("meta"):
            block = self.build(1).block_size
        return zero.text.Batches(tokens, self.batch, block, rank, world_size)


@dataclass
class Lane:
    """One system on one rank.

    `losses` of all rounds; `seconds`, and `work`, the processor time of all threads in seconds, of
    the timed ones. Bytes of a step: `sent`, `kept` when it is over, `peak`.
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    sent: int = 0
    kept: int = 0
    peak: int = 0

    def warm_up(self, trainer: Trainer, batch: list[torch.Tensor]) -> None:
        """One step, to make what a first step makes."""
        self.losses.append(trainer.step(*batch).item())

    def count_sent(self, trainer: Trainer, batch: list[torch.Tensor]) -> None:
        """One step; the bytes of floating-point data that it sends."""
        with Traffic() as traffic:
            self.warm_up(trainer, batch)
        self.sent = traffic.bytes(floating=True)

    def count_memory(self, trainer: Trainer, batch: list[torch.Tensor]) -> None:
        """One step; the bytes alive at its peak and when it is over."""
        with Meter(trainer.model, trainer.opt) as meter:
            self.warm_up(trainer, batch)
            self.kept = meter.current
        self.peak = meter.peak

    def time(self, trainer: Trainer, batch: list[torch.Tensor]) -> None:
        """One step, timed."""
        start, work = time.perf_counter(), time.process_time()
        loss = trainer.step(*batch).item()  # waits for a CUDA device too
        self.seconds.append(time.perf_counter() - start)
        self.work.append(time.process_time() - work)
        self.losses.append(loss)


UNTIMED = (Lane.warm_up, Lane.count_sent, Lane.count_memory)


def run_heat(
    rank: int, world_size: int, case: Case, racing: list[System], rounds: int, text: str
) -> list[Lane]:
    """One lane for each of the racing systems. All ranks together; rank 0 prints a line a step."""
    batches = case.batches(text, rank, world_size)
    trainers = [system.build(case.model(text).to(comm.device())) for system in racing]
    lanes = [Lane() for _ in racing]
    for number, move in enumerate((*UNTIMED, *[Lane.time] * rounds)):
        if number == len(UNTIMED):
            gc.collect()
            gc.freeze()  # what lives now stays; the collector need not look at it in a step
        batch = [part.to(comm.device()) for part in batches(number)]
        for place in random.Random(number).sample(range(len(racing)), len(racing)):
            comm.barrier()
            move(lanes[place], trainers[place], batch)
            if rank == 0:
                print(number, flush=True)
    return lanes
