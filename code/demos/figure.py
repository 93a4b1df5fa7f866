"""The picture of `compare`: loss, memory, traffic and time, stage by stage."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a file, no window

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from demos.measure import MODEL_STATES
from demos.results import Comparison, Run

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "parameters": "#0072B2",
    "gradients": "#E69F00",
    "optimizer": "#009E73",
    "communication": "#CC79A7",
    "activations": "#BBBBBB",
    "counters": "#000000",
    "forward": "#56B4E9",
    "backward": "#0072B2",
}


def draw(comparison: Comparison, file: Path) -> None:
    """Write the picture to `file`, a PNG."""
    runs = comparison.runs
    picture, ((top_left, top_right), (low_left, low_right)) = plt.subplots(
        2, 2, figsize=(11, 7.5), layout="constrained"
    )
    picture.suptitle(
        f"{comparison.task}: {comparison.world_size} ranks, {runs[0].precision}", fontsize=12
    )
    _losses(top_left, runs)
    _memory(top_right, runs)
    _traffic(low_left, runs)
    _time(low_right, runs)
    picture.savefig(file, dpi=120, format="png")
    plt.close(picture)


def _losses(axes: Axes, runs: list[Run]) -> None:
    # Equal curves lie on each other: wide ones below narrow ones show them all.
    for place, run in enumerate(runs):
        width = 2 + 2.5 * (len(runs) - 1 - place)
        steps = range(1, len(run.losses) + 1)
        axes.plot(steps, run.losses, linewidth=width, label=run.name, alpha=0.8, marker=".")
    axes.set(title="Loss", xlabel="step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()


def _memory(axes: Axes, runs: list[Run]) -> None:
    kinds = {kind: [run.ranks[0].memory[kind] for run in runs] for kind in MODEL_STATES}
    _stack(axes, runs, kinds, 1e6)
    peaks = [run.ranks[0].peak / 1e6 for run in runs]
    axes.plot(range(len(runs)), peaks, "kv", label="peak in a step")
    axes.set(title="Memory of rank 0: kept between steps, and peak", ylabel="MB")
    axes.legend()


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
    axes.legend(loc="upper left", ncols=2)


def _time(axes: Axes, runs: list[Run]) -> None:
    parts = {
        part: [run.seconds[part] for run in runs]
        for part in ("forward", "backward", "communication", "optimizer")
    }
    _stack(axes, runs, parts, 1e-3)
    axes.set(title="Time of a step", ylabel="ms")
    axes.legend()


def _stack(axes: Axes, runs: list[Run], parts: dict[str, list[float]], unit: float) -> None:
    places = range(len(runs))
    floor = [0.0] * len(runs)
    for name, values in parts.items():
        heights = [value / unit for value in values]
        axes.bar(places, heights, 0.6, bottom=floor, color=COLOURS[name], label=name)
        floor = [low + high for low, high in zip(floor, heights, strict=True)]
    axes.set_xticks(places)
    axes.set_xticklabels([run.name for run in runs])
