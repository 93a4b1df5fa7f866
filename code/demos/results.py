"""What `compare` found, and what can be read off it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from demos.measure import MODEL_STATES, Measured
from demos.settings import stage_name

PARTS = ("forward", "backward", "communication", "optimizer", "step")


@dataclass
class Run:
    """One stage: what every rank measured, in rank order."""

    stage: int
    precision: str
    ranks: list[Measured]

    @property
    def name(self) -> str:
        """DDP, ZeRO-1, ..."""
        return stage_name(self.stage)

    @property
    def losses(self) -> list[float]:
        """Loss of each step: the mean over the ranks, so that of the joined batch."""
        by_step = zip(*(rank.losses for rank in self.ranks), strict=True)
        return [sum(losses) / len(losses) for losses in by_step]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each part of a step, the mean over the ranks."""
        return {p: sum(r.seconds[p] for r in self.ranks) / len(self.ranks) for p in PARTS}

    def as_json(self) -> dict:
        """Bytes of rank 0."""
        first = self.ranks[0]
        return {
            "name": self.name,
            "stage": self.stage,
            "precision": self.precision,
            "losses": self.losses,
            "memory": {
                "predicted": first.memory_predicted,
                "persistent": first.memory,
                "peak": first.peak,
            },
            "wire": {"predicted": first.sent_predicted, "sent": first.sent},
            "seconds": self.seconds,
        }


@dataclass
class Comparison:
    """All runs, and what they have in common. `task` says in words what was trained."""

    world_size: int
    task: str
    runs: list[Run]

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return self.runs[0].ranks[0].parameters

    @property
    def backend(self) -> str:
        """What carried the bytes: gloo or nccl."""
        return self.runs[0].ranks[0].backend

    def as_json(self) -> dict:
        """Bytes are those of rank 0, for one step; seconds the mean over the ranks."""
        return {
            "world_size": self.world_size,
            "backend": self.backend,
            "torch": torch.__version__,
            "model": {"parameters": self.parameters},
            "runs": [run.as_json() for run in self.runs],
        }


def bitwise_equal(runs: list[Run]) -> bool:
    """Are all losses, rank by rank, and all final weights the same bits in all runs?"""
    weights = {rank.weights for run in runs for rank in run.ranks}
    losses = {tuple(tuple(rank.losses) for rank in run.ranks) for run in runs}
    return len(weights) == len(losses) == 1


def largest_difference(runs: list[Run]) -> float:
    """Between the loss of any run and that of the first one, over all steps."""
    first = runs[0].losses
    return max(abs(a - b) for run in runs for a, b in zip(run.losses, first, strict=True))


def wrong_figures(comparison: Comparison) -> list[str]:
    """Where a rank measured other bytes than predicted: one line for each."""
    wrong = []
    for run in comparison.runs:
        for number, rank in enumerate(run.ranks):
            pairs = [(k, rank.memory_predicted[k], rank.memory[k]) for k in MODEL_STATES]
            pairs.append(("sent bytes", rank.sent_predicted, rank.sent))
            wrong += [
                f"{run.name}, rank {number}: {kind} {measured:,}, predicted {predicted:,}"
                for kind, predicted, measured in pairs
                if predicted != measured
            ]
    return wrong
