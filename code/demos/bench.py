"""`bench`: how fast is a step, how much is sent and kept, beside the libraries that do the same.

Times on a shared machine drift by a quarter from minute to minute, so two runs, one after the
other, cannot be compared. Here every rank holds all systems at once, and in each round each of them
makes one step, in turn; what is compared is the ratio of two steps of the same round. DDP takes
part twice: the ratio of the two, which ought to be 1, is the error of the method.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median, quantiles

import torch

import zero
from demos import bench_report, settings
from demos.arguments import UsageError
from demos.heat import UNTIMED, Case, Lane, run_heat
from demos.progress import Bar
from demos.systems import BASE, CONTROL, System, systems
from zero.doctor import free_memory

SHARE_OF_MEMORY = 0.7
BYTES_A_PARAMETER = 24  # of one system on one rank: 16 of model states, and buffers


CASES = {
    "3m": Case(zero.models.gpt_3m, ranks=4, batch=2),
    "30m": Case(zero.models.gpt_30m, ranks=2, batch=2),
}


@dataclass
class Row:
    """One system, all ranks together. A step takes as long as its slowest rank; work is summed.

    `ratios` are to DDP's step of the same round, `work_ratios` likewise; bytes are those of rank 0.
    """

    system: System
    seconds: list[float]
    ratios: list[float]
    work_ratios: list[float]
    losses: list[float]
    sent: int
    kept: int
    peak: int

    @property
    def ratio(self) -> float:
        """The median."""
        return median(self.ratios)

    @property
    def work_ratio(self) -> float:
        """The median for processor time: it depends less on who else uses the machine."""
        return median(self.work_ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the ratios; with one round there is no spread."""
        if len(self.ratios) < 2:
            return self.ratio, self.ratio
        low, _, high = quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    def as_json(self) -> dict:
        """Bytes of rank 0, a step; seconds and ratios are medians over the rounds."""
        return {
            "name": self.system.name,
            "precision": self.system.precision,
            "ours": self.system.ours,
            "ratio": {"median": self.ratio, "quartiles": list(self.spread)},
            "work_ratio": self.work_ratio,
            "seconds": median(self.seconds),
            "wire": {"sent": self.sent},
            "memory": {"persistent": self.kept, "peak": self.peak},
            "losses": self.losses,
        }


@dataclass
class Bench:
    """All systems on one size of model."""

    name: str
    parameters: int
    case: Case
    rounds: int
    rows: list[Row]

    def as_json(self) -> dict:
        """The whole table."""
        return {
            "model": {"name": self.name, "parameters": self.parameters},
            "world_size": self.case.ranks,
            "batch": self.case.batch,
            "rounds": self.rounds,
            "systems": [row.as_json() for row in self.rows],
        }


def run(args) -> int:
    """Run the subcommand; the exit code."""
    settings.refuse_torchrun("bench")
    text = zero.text.load(args.text)
    chosen = _choose(args.only)
    found = []
    for name in args.models or CASES:
        bench = race(name, CASES[name], chosen, args.rounds, text)
        bench_report.show(bench)
        found.append(bench)
    if args.figure:
        bench_report.draw(found, args.figure)
        print(f"figure: {args.figure}")
    if args.json:
        whole = {"torch": torch.__version__, "benches": [bench.as_json() for bench in found]}
        args.json.write_text(json.dumps(whole, indent=1) + "\n")
        print(f"json: {args.json}")
    return 0


def _choose(words: list[str] | None) -> list[System]:
    chosen = [s for s in systems() if not words or any(word in s.name for word in words)]
    others = [s for s in chosen if s.name not in (BASE, CONTROL)]
    if not others:
        names = ", ".join(dict.fromkeys(s.name for s in systems()))
        raise UsageError(f"no system is called {' or '.join(words)}; there are: {names}")
    return others


def race(name: str, case: Case, others: list[System], rounds: int, text: str) -> Bench:
    """All systems against DDP, so many at a time as fit into memory."""
    both = [s for s in systems() if s.name in (BASE, CONTROL)]
    parameters = sum(p.numel() for p in case.model(text).parameters())
    room = _room(parameters, case.ranks) - len(both)
    heats = [others[i : i + room] for i in range(0, len(others), room)]
    rows: list[Row] = []
    total = sum((rounds + len(UNTIMED)) * (len(heat) + 2) for heat in heats)
    with Bar(total=total) as bar:
        bar.name(name)
        for heat in heats:
            lanes = zero.launch(
                run_heat,
                case.ranks,
                case,
                both + heat,
                rounds,
                text,
                timeout=None,
                live=bar.advance,
            )
            rows += _rows(both + heat, lanes)[len(both) if rows else 0 :]
    return Bench(name, parameters, case, rounds, rows)


def _room(parameters: int, ranks: int) -> int:
    """How many systems fit into memory at once: DDP twice and at least one more."""
    free = free_memory()
    if free is None:
        return 1000
    return max(3, int(SHARE_OF_MEMORY * free / (BYTES_A_PARAMETER * parameters * ranks)))


def _rows(racing: list[System], lanes: list[list[Lane]]) -> list[Row]:
    by_system = [list(ranks) for ranks in zip(*lanes, strict=True)]
    base = by_system[0]
    return [_row(system, ranks, base) for system, ranks in zip(racing, by_system, strict=True)]


def _row(system: System, ranks: list[Lane], base: list[Lane]) -> Row:
    seconds, base_seconds = _by_round(ranks, "seconds", max), _by_round(base, "seconds", max)
    work, base_work = _by_round(ranks, "work", sum), _by_round(base, "work", sum)
    first = ranks[0]
    return Row(
        system,
        seconds,
        ratios=[mine / ddp for mine, ddp in zip(seconds, base_seconds, strict=True)],
        work_ratios=[mine / ddp for mine, ddp in zip(work, base_work, strict=True)],
        losses=_by_round(ranks, "losses", mean),
        sent=first.sent,
        kept=first.kept,
        peak=first.peak,
    )


def _by_round(ranks: list[Lane], name: str, together: Callable) -> list[float]:
    return [together(values) for values in zip(*(getattr(r, name) for r in ranks), strict=True)]
