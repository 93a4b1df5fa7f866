"""The table and the picture of `bench`."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")  # a file, no window

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from demos.table import plain_table
from zero import formulas

if TYPE_CHECKING:
    from demos.bench import Bench, Row

OURS, OTHERS = "#0072B2", "#999999"


def show(bench: Bench) -> None:
    """Print the table of one size of model to stdout."""
    console = Console(highlight=False)
    console.print(
        f"GPT, {formulas.human_count(bench.parameters)} parameters, {bench.case.ranks} ranks, "
        f"{bench.rounds} rounds: a step beside DDP's",
        style="bold",
    )
    console.print(table(bench.rows))
    console.print(
        "time: ratio to DDP's step of the same round, median and quartiles; work: that of\n"
        f"processor time, which depends less on what else runs.\n{_alike(bench.rows)}\n"
    )


def table(rows: list[Row]) -> Table:
    """One row a system: ratios to DDP, milliseconds, megabytes of rank 0."""
    made = plain_table("", "", "time", "work", "ms", "sent", "kept", "peak MB")
    for row in rows:
        low, high = row.spread
        made.add_row(
            row.system.name,
            row.system.precision,
            f"{row.ratio:.2f} ({low:.2f}-{high:.2f})",
            f"{row.work_ratio:.2f}",
            f"{1e3 * median(row.seconds):.0f}",
            *(f"{amount / 1e6:.1f}" for amount in (row.sent, row.kept, row.peak)),
        )
    return made


def _alike(rows: list[Row]) -> str:
    """How far the losses of all systems are from DDP's at most, by precision."""
    parts = []
    for precision in ("fp32", "bf16"):
        differences = [
            abs(mine - ddp)
            for row in rows
            if row.system.precision == precision and row.system.same_training
            for mine, ddp in zip(row.losses, rows[0].losses, strict=True)
        ]
        if differences:
            parts.append(f"{max(differences):.0e} in {precision}")
    return f"Losses equal DDP's within {' and '.join(parts)}."


def draw(benches: list[Bench], file: Path) -> None:
    """Write the picture to `file`, a PNG: step times to the left, memory to the right."""
    most = max(len(bench.rows) for bench in benches)
    picture, axes = plt.subplots(
        len(benches),
        2,
        figsize=(12, 1.5 + 0.3 * most * len(benches)),
        layout="constrained",
        squeeze=False,
    )
    for (left, right), bench in zip(axes, benches, strict=True):
        _ratios(left, bench)
        _memory(right, bench)
    picture.savefig(file, dpi=120, format="png")
    plt.close(picture)


def _ratios(axes: Axes, bench: Bench) -> None:
    ratios = [row.ratio for row in bench.rows]
    spreads = [row.spread for row in bench.rows]
    errors = [
        [ratio - low for ratio, (low, _) in zip(ratios, spreads, strict=True)],
        [high - ratio for ratio, (_, high) in zip(ratios, spreads, strict=True)],
    ]
    _bars(axes, bench, ratios, xerr=errors)
    axes.axvline(1, color="black", linewidth=1)
    size = formulas.human_count(bench.parameters)
    axes.set_title(f"{size} parameters, {bench.case.ranks} ranks: step time, DDP = 1")


def _memory(axes: Axes, bench: Bench) -> None:
    _bars(axes, bench, [row.kept / 1e6 for row in bench.rows])
    axes.plot(
        [row.peak / 1e6 for row in bench.rows], range(len(bench.rows)), "k|", label="peak in a step"
    )
    axes.set_title("Memory of rank 0 between steps, MB")
    axes.legend(loc="lower right")


def _bars(axes: Axes, bench: Bench, values: list[float], **how) -> None:
    places = range(len(bench.rows))
    colours = [OURS if row.system.ours else OTHERS for row in bench.rows]
    bars = axes.barh(places, values, color=colours, **how)
    for bar, row in zip(bars, bench.rows, strict=True):
        bar.set_alpha(1.0 if row.system.precision == "fp32" else 0.55)
    axes.set_yticks(places)
    axes.set_yticklabels([f"{row.system.name} {row.system.precision}" for row in bench.rows])
    axes.invert_yaxis()
