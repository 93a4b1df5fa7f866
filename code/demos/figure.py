"""The picture of `compare`: memory along a step, then loss, memory, traffic and time by stage."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a file, no window

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator

from course.style import COLORS, LABELS
from demos.measure import MODEL_STATES
from demos.results import Comparison, Run
from zero.meter import KINDS

# The colours of the lessons, and three more.
COLOURS = {**COLORS, "counters": "#000000", "forward": "#BBBBBB", "backward": "#777777"}


def draw(comparison: Comparison, file: Path) -> None:
    """Write the picture to `file`, a PNG."""
    runs = comparison.runs
    picture = plt.figure(figsize=(12, 7), layout="constrained")
    picture.suptitle(
        f"{comparison.task}: {comparison.world_size} ranks, {runs[0].precision}", fontsize=12
    )
    above, below = picture.subfigures(2, 1, height_ratios=(5, 4))
    _along_a_step(above, runs)
    losses, kept, traffic, time = below.subplots(1, 4)
    _losses(losses, runs)
    _kept(kept, runs)
    _traffic(traffic, runs)
    _time(time, runs)
    picture.savefig(file, dpi=120, format="png")
    plt.close(picture)


def _along_a_step(picture: SubFigure, runs: list[Run]) -> None:
    """A panel for each stage: what is alive in forward, in backward and in the update."""
    panels = picture.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    alive = [run.ranks[0].alive for run in runs]
    most = max(step.live.sum(0).max() for step in alive)
    # What would not be seen, as the optimizer's step counters, is not in the legend either.
    kinds = [k for k in range(len(KINDS)) if any(a.live[k].max() > most / 200 for a in alive)]
    for axes, run, step in zip(panels, runs, alive, strict=True):
        axes.stackplot(
            step.place,
            step.live[kinds] / 1e6,
            labels=[LABELS.get(KINDS[k], KINDS[k]) for k in kinds],
            colors=[COLOURS[KINDS[k]] for k in kinds],
            step="post",
            linewidth=0,
        )
        axes.set(title=run.name, xlim=(0, 3), xticks=(0.5, 1.5, 2.5))
        axes.set_xticklabels(("forward", "backward", "step"))
        axes.tick_params(axis="x", length=0)
        for border in (1, 2):
            axes.axvline(border, color="white", linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("MB alive on rank 0")
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)


def _losses(axes: Axes, runs: list[Run]) -> None:
    # Equal curves lie on each other: wide ones below narrow ones show them all.
    for place, run in enumerate(runs):
        width = 2 + 2.5 * (len(runs) - 1 - place)
        steps = range(1, len(run.losses) + 1)
        axes.plot(steps, run.losses, linewidth=width, label=run.name, alpha=0.8, marker=".")
    axes.set(title="Loss", xlabel="step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize="small")


def _kept(axes: Axes, runs: list[Run]) -> None:
    kinds = {kind: [run.ranks[0].memory[kind] for run in runs] for kind in MODEL_STATES}
    _stack(axes, runs, kinds, 1e6)
    peaks = [run.ranks[0].peak / 1e6 for run in runs]
    axes.plot(range(len(runs)), peaks, "kv", label="peak")
    axes.set(title="Kept between steps, and peak", ylabel="MB on rank 0")


def _traffic(axes: Axes, runs: list[Run]) -> None:
    places = range(len(runs))
    sent = [run.ranks[0].sent / 1e6 for run in runs]
    predicted = [run.ranks[0].sent_predicted / 1e6 for run in runs]
    axes.bar(places, sent, 0.6, color=COLOURS["communication"], label="sent")
    axes.hlines(
        predicted, [p - 0.4 for p in places], [p + 0.4 for p in places], "k", label="predicted"
    )
    axes.set(
        title="Sent by rank 0 in a step", ylabel="MB", xticks=places, ylim=(0, 1.3 * max(sent))
    )
    axes.set_xticklabels([run.name for run in runs])
    axes.legend(loc="upper left")


def _time(axes: Axes, runs: list[Run]) -> None:
    parts = {
        part: [run.seconds[part] for run in runs]
        for part in ("forward", "backward", "communication", "optimizer")
    }
    _stack(axes, runs, parts, 1e-3)
    highest = max(sum(run.seconds[part] for part in parts) for run in runs)
    axes.set(title="Time of a step", ylabel="ms", ylim=(0, 1.6 * 1e3 * highest))
    axes.legend(loc="upper left", ncols=2, fontsize="x-small", handlelength=1, columnspacing=0.8)


def _stack(axes: Axes, runs: list[Run], parts: dict[str, list[float]], unit: float) -> None:
    places = range(len(runs))
    floor = [0.0] * len(runs)
    for name, values in parts.items():
        heights = [value / unit for value in values]
        axes.bar(places, heights, 0.6, bottom=floor, color=COLOURS[name], label=name)
        floor = [low + high for low, high in zip(floor, heights, strict=True)]
    axes.set_xticks(places)
    axes.set_xticklabels([run.name for run in runs])
