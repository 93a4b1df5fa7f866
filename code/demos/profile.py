"""`profile`: where the time and the memory of one step go, rank by rank.

Time is taken in a step that nothing disturbs. Following every tensor slows a step down, so memory
is taken in a second one; both make the same moves in the same order, and move by move the memory
is laid on the time line of the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

import zero
from demos import profile_report, settings
from demos.measure import bytes_by_kind, since_the_start, train_step
from demos.settings import Training
from zero import comm
from zero.meter import Clock, Event, Meter

WARM_UP = 3  # steps before: states are made, the order of ZeRO-3's units is learnt
SECONDS = 600.0


@dataclass
class Timeline:
    """One rank's step.

    `events` in the order of their start, with the bytes that this rank sent in each (None for what
    sends nothing by itself). `seconds` [moments] and `live` [kinds, moments] are what was alive.
    """

    events: list[tuple[Event, int | None]]
    seconds: np.ndarray
    live: np.ndarray


def run(args) -> int:
    """Run the subcommand; the exit code."""
    settings.refuse_torchrun("profile")
    settings.check_stages([args.stage])
    training = settings.training(args, args.ranks)
    lines = zero.launch(profile, args.ranks, training, args.stage, timeout=SECONDS, quiet=True)
    start = min(event.start for line in lines for event, _ in line.events)
    title = (
        f"One step of {settings.stage_name(args.stage)}, {args.model}, "
        f"{settings.rank_count(args.ranks)}, {training.precision}"
    )
    profile_report.show(title, lines, start)
    if args.figure:
        profile_report.draw(title, lines, start, args.figure)
        print(f"figure: {args.figure}")
    return 0


def profile(rank: int, world_size: int, training: Training, stage: int) -> Timeline:
    """Train a few steps, then look at one. Runs on every rank at once."""
    model = training.model().to(comm.device())
    opt = training.shard(model, stage)
    batches = training.batches(rank, world_size)
    *before, timed, metered = [batches(number) for number in range(WARM_UP + 2)]
    for batch in before:
        train_step(model, opt, batch)
    comm.barrier()
    with comm.record() as log, Clock(model, opt) as clock:
        train_step(model, opt, timed)
    comm.barrier()
    with Clock(model, opt) as slow, Meter(model, opt) as meter:
        train_step(model, opt, metered)
        meter.live()  # names what the step has left
    events, slow_events = in_order(clock.events), in_order(slow.events)
    moments = since_the_start(meter)
    seconds = align(np.array([moment.seconds for moment in moments]), slow_events, events)
    return Timeline(with_bytes(events, log), seconds, bytes_by_kind(moments))


def in_order(events: list[Event]) -> list[Event]:
    """By their start; of two that start together the outer one first."""
    return sorted(events, key=lambda event: (event.start, -event.end))


def align(seconds: np.ndarray, slow: list[Event], events: list[Event]) -> np.ndarray:
    """Times of the slow step [n] as times of the other one.

    Starts and ends of the same events are the same moments; between them time runs evenly. Where
    the two steps did not make the same moves, as when a collective fell behind another event, only
    forward, backward and update are laid on each other.
    """
    if [_move(e) for e in slow] != [_move(e) for e in events]:
        slow, events = _computing(slow), _computing(events)
    pairs = sorted(
        (then, now)
        for a, b in zip(slow, events, strict=True)
        for then, now in ((a.start, b.start), (a.end, b.end))
    )
    then, now = np.array(pairs).T
    return np.interp(seconds, then, np.maximum.accumulate(now))


def _move(event: Event) -> tuple[str, str]:
    """What it was; the name of a collective also says in which step it was."""
    return event.part, re.sub(r", step \d+$", "", event.name)


def _computing(events: list[Event]) -> list[Event]:
    return [event for event in events if event.part != "communication"]


def with_bytes(events: list[Event], log: comm.Log) -> list[tuple[Event, int | None]]:
    """Each event, and what `comm` has logged for it: both are in the order of their start."""
    sent = iter([entry.bytes for entry in log.entries])
    return [(e, next(sent, None) if e.part == "communication" else None) for e in events]
