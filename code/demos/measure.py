"""What one rank does for `compare`: train at one stage, and measure time, traffic and memory.

Time and traffic are taken while the losses are made. Memory is taken in one more step, because
following every tensor slows a step down several times.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn

import zero
from demos.settings import MOMENTS, Training
from zero import comm, formulas
from zero.meter import KINDS, Clock, Meter, Moment

MODEL_STATES = ("parameters", "gradients", "optimizer")


@dataclass
class Alive:
    """What was alive on one rank over one step: `live` [kinds, moments] in bytes.

    `place` [moments] is where in the step: from 0 to 1 in forward, to 2 in backward, to 3 in the
    update. Within each of them it runs with time.
    """

    place: np.ndarray
    live: np.ndarray


@dataclass
class Measured:
    """One rank at one stage. Bytes, seconds a step.

    `weights` is a digest of the final weights: equal digests are bitwise equal weights. `at_peak`
    is what was alive, by kind, when the total was highest; `alive` is the way there and back.
    """

    parameters: int
    losses: list[float]
    weights: str
    memory_predicted: dict[str, int]
    memory: dict[str, int]
    at_peak: dict[str, int]
    alive: Alive
    sent_predicted: int
    sent: int
    seconds: dict[str, float]
    backend: str

    @property
    def kept(self) -> int:
        """Bytes of model states between two steps."""
        return sum(self.memory.values())

    @property
    def peak(self) -> int:
        """Highest total of bytes alive in a step: model states, activations, buffers."""
        return sum(self.at_peak.values())


def measure(rank: int, world_size: int, training: Training, stage: int) -> Measured:
    """Train `training.steps` steps at `stage`, measuring. Runs on every rank at once.

    Rank 0 prints one line a step, for the progress bar.
    """
    model = training.model().to(comm.device())
    opt = training.shard(model, stage)
    batches = training.batches(rank, world_size)

    def steps(start: int, end: int) -> list[float]:
        losses = []
        for number in range(start, end):
            losses.append(train_step(model, opt, batches(number)))
            if rank == 0:
                print(number, flush=True)
        return losses

    # The first step also makes the optimizer's states, so it is not timed if there are others.
    untimed = min(1, training.steps - 1)
    losses = steps(0, untimed)
    with comm.record() as log, Clock(model, opt) as clock:
        losses += steps(untimed, training.steps)
    weights = digest(model, opt)
    memory, at_peak, alive = memory_of_a_step(model, opt, batches(training.steps))
    predicted, sent = predictions(opt, MOMENTS[training.optimizer])
    return Measured(
        parameters=sum(b.layout.numel for b in opt.buckets),
        losses=losses,
        weights=weights,
        memory_predicted=predicted,
        memory=memory,
        at_peak=at_peak,
        alive=alive,
        sent_predicted=sent,
        sent=log.bytes() // (training.steps - untimed),
        seconds=clock.per_step(),
        backend=torch.distributed.get_backend(),
    )


def train_step(
    model: nn.Module, opt: zero.ZeroOptimizer, batch: tuple, clip: float | None = None
) -> float:
    """One step as any PyTorch user would write it; the loss of this rank's batch."""
    x, y = (part.to(comm.device()) for part in batch)
    opt.zero_grad()
    loss = model(x, y)
    opt.scale(loss).backward()  # the scale is 1 but for fp16
    if clip is not None:
        opt.clip_grad_norm_(clip)
    opt.step()
    return loss.item()


def digest(model: nn.Module, opt: zero.ZeroOptimizer) -> str:
    """A digest of all weights, whole even where they are sharded. Collective."""
    found = hashlib.sha256()
    with opt.full_params():
        for parameter in model.parameters():
            # A copy, because a tensor that numpy has seen can no longer give its memory back.
            copy = parameter.detach().cpu().clone().reshape(-1)
            found.update(copy.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def memory_of_a_step(
    model: nn.Module, opt: zero.ZeroOptimizer, batch: tuple
) -> tuple[dict[str, int], dict[str, int], Alive]:
    """Bytes by kind of one more step: the model states after it, all at its peak, all along it."""
    opt.zero_grad()
    with Clock(model, opt) as clock, Meter(model, opt) as meter:
        train_step(model, opt, batch)
        live = meter.live()
    kept = {kind: live[kind] for kind in MODEL_STATES}
    return kept, meter.at_peak(), along_the_step(meter, clock)


def along_the_step(meter: Meter, clock: Clock) -> Alive:
    """What `meter` saw, placed in the step that `clock` saw."""
    parts = {event.part: event for event in clock.events}
    borders = [parts[part].start for part in ("forward", "backward", "optimizer")]
    borders.append(parts["optimizer"].end)
    moments = since_the_start(meter)
    seconds = [moment.seconds for moment in moments]
    return Alive(np.interp(seconds, borders, range(4)), bytes_by_kind(moments))


def since_the_start(meter: Meter) -> list[Moment]:
    """The meter's moments, without those in which it finds what exists already, one by one."""
    moments = meter.timeline()
    return moments[[moment.name for moment in moments].index("start") :]


def bytes_by_kind(moments: list[Moment]) -> np.ndarray:
    """[kinds, moments]."""
    return np.array([[moment.live[kind] for moment in moments] for kind in KINDS])


def predictions(opt: zero.ZeroOptimizer, moments: int) -> tuple[dict[str, int], int]:
    """What the formulas say of this rank: bytes of model states, bytes sent a step."""
    numels = [bucket.layout.numel for bucket in opt.buckets]
    how = (numels, opt.stage, opt.world_size, opt.precision.name)
    states = formulas.model_states(*how, moments, rank=opt.rank)
    return asdict(states), sum(formulas.wire(*how).values())
