"""The time line of `profile`, as text and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")  # a file, no window

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from rich.console import Console
from rich.table import Table

from demos.figure import COLOURS
from demos.table import plain_table
from zero.meter import KINDS

if TYPE_CHECKING:
    from demos.profile import Timeline
    from zero.meter import Event

COMPUTING = {"forward": "f", "backward": "b", "optimizer": "o"}
# "all_gather_small" before "all_gather", of which it is a case: the first that fits counts.
SENDING = {
    "all_gather_small": ".",
    "all_gather": "G",
    "reduce_scatter": "S",
    "all_reduce": "A",
    "broadcast": "B",
}
COLOURS_OF_SENDING = {
    "all_gather_small": "#555555",
    "all_gather": "#CC79A7",
    "reduce_scatter": "#D55E00",
    "all_reduce": "#F0E442",
    "broadcast": "#000000",
}
LEGEND = """upper line: f forward, b backward, o optimizer; lower line, until the wait is
over: G all-gather, S reduce-scatter, A all-reduce, . small values;
memory: of rank 0, in tenths of its peak of"""
COLUMNS = 66


def show(title: str, lines: list[Timeline], start: float) -> None:
    """Print to stdout: two strips of letters for each rank, memory beneath, all moves of rank 0."""
    console = Console(highlight=False, markup=False)
    end = max(event.end for line in lines for event, _ in line.events)
    console.print(f"{title}: {1e3 * (end - start):.1f} ms", style="bold")
    for rank, line in enumerate(lines):
        console.print(f"rank {rank:<5}|{strip(line, start, end, COMPUTING)}|")
        console.print(f"          |{strip(line, start, end, SENDING)}|")
    peak = int(lines[0].live.sum(0).max())
    console.print(f"memory    |{memory_strip(lines[0], start, end)}|")
    console.print(f"{LEGEND} {peak / 1e6:.2f} MB\n")
    console.print("All moves of rank 0", style="bold")
    console.print(moves(lines[0], start))
    console.print("\nMemory of rank 0 in MB", style="bold")
    console.print(memory(lines[0]))


def what(event: Event) -> str:
    """A key of COMPUTING or of SENDING."""
    if event.part != "communication":
        return event.part
    return next(op for op in SENDING if event.name.startswith(op))


def strip(line: Timeline, start: float, end: float, letters: dict[str, str]) -> str:
    """One letter for each part of the time: the event that began last of those at its middle."""
    cells = [" "] * COLUMNS
    middles = start + (np.arange(COLUMNS) + 0.5) * (end - start) / COLUMNS
    for event, _ in line.events:
        if what(event) in letters:
            for place in np.flatnonzero((middles >= event.start) & (middles < event.end)):
                cells[place] = letters[what(event)]
    return "".join(cells)


def memory_strip(line: Timeline, start: float, end: float) -> str:
    """One digit for each part of the time: tenths of the peak, 9 from nine tenths up."""
    total = line.live.sum(0)
    middles = start + (np.arange(COLUMNS) + 0.5) * (end - start) / COLUMNS
    places = np.clip(np.searchsorted(line.seconds, middles, side="right") - 1, 0, None)
    return "".join(str(min(9, int(10 * total[place] / total.max()))) for place in places)


def moves(line: Timeline, start: float) -> Table:
    """A row for each event: when, how long, what, bytes sent."""
    table = plain_table("what", "start, ms", "ms", "sent, kB")
    for event, sent in line.events:
        name = event.name.split(", step")[0]
        table.add_row(
            name if sent is None else f"  {name[:46]}",
            f"{1e3 * (event.start - start):.2f}",
            f"{1e3 * (event.end - event.start):.2f}",
            "" if sent is None else f"{sent / 1e3:.1f}",
        )
    return table


def memory(line: Timeline) -> Table:
    """Bytes by kind at the start, at the highest total and at the end."""
    names = ("commun." if kind == "communication" else kind for kind in KINDS)
    table = plain_table("", *names, "total")
    for name, place in (
        ("start", 0),
        ("peak", int(line.live.sum(0).argmax())),
        ("end", -1),
    ):
        amounts = line.live[:, place]
        table.add_row(name, *(f"{a / 1e6:.2f}" for a in amounts), f"{amounts.sum() / 1e6:.2f}")
    return table


# --- the picture ---------------------------------------------------------------------------------


def draw(title: str, lines: list[Timeline], start: float, file: Path) -> None:
    """Write the picture to `file`, a PNG: ranks above, memory of rank 0 below, on one time axis."""
    picture, (above, below) = plt.subplots(
        2,
        1,
        figsize=(12, 4 + 0.6 * len(lines)),
        sharex=True,
        layout="constrained",
        height_ratios=(len(lines), 4),
    )
    picture.suptitle(title)
    _ranks(above, lines, start)
    _memory(below, lines[0], start)
    picture.savefig(file, dpi=120, format="png")
    plt.close(picture)


def _ranks(axes: Axes, lines: list[Timeline], start: float) -> None:
    colours = {**{part: COLOURS[part] for part in COMPUTING}, **COLOURS_OF_SENDING}
    seen = set()
    for rank, line in enumerate(lines):
        for event, _ in line.events:
            kind = what(event)
            seen.add(kind)
            axes.broken_barh(
                [(1e3 * (event.start - start), 1e3 * (event.end - event.start))],
                (rank if kind in COMPUTING else rank + 0.4, 0.4),
                facecolors=colours[kind],
                edgecolors="white",
                linewidth=0.4,
            )
    axes.set_yticks([rank + 0.4 for rank in range(len(lines))])
    axes.set_yticklabels([f"rank {rank}" for rank in range(len(lines))])
    axes.invert_yaxis()
    patches = [Patch(color=colours[kind], label=kind) for kind in colours if kind in seen]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1, 1))


def _memory(axes: Axes, line: Timeline, start: float) -> None:
    kinds = [place for place, kind in enumerate(KINDS) if line.live[place].max() > 0]
    axes.stackplot(
        1e3 * (line.seconds - start),
        line.live[kinds] / 1e6,
        labels=[KINDS[place] for place in kinds],
        colors=[COLOURS[KINDS[place]] for place in kinds],
        step="post",
    )
    axes.set(xlabel="ms", ylabel="MB alive on rank 0")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
