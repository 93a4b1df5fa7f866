"""The tables and the picture of `compare --activations`."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")  # a file, no window

import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table

from demos.activations import Comparison
from demos.settings import rank_count, stage_name
from demos.table import plain_table
from zero import formulas

GPT2 = {"hidden": 1600, "batch": 32, "sequence": 1024, "layers": 48}  # 1.5 billion parameters
GPT2_RANKS = 16
COLOURS = {
    "none": "#BBBBBB",
    "checkpoint": "#0072B2",
    "partition": "#E69F00",
    "offload": "#009E73",
}


def show(comparison: Comparison) -> None:
    """Print everything to stdout."""
    console = Console(highlight=False)
    ranks = comparison.dp * comparison.tp
    console.print(
        f"GPT on text, {formulas.human_count(comparison.parameters)} parameters; "
        f"{rank_count(ranks)}: {comparison.dp} replicas over {comparison.tp} tensor-parallel "
        f"ranks each, {stage_name(comparison.stage)}, {comparison.precision}\n"
    )
    console.print("Activations of rank 0 in MB: after forward, and peak of a step", style="bold")
    console.print(memory(comparison))
    console.print("\nA step: MB that rank 0 sends beside ZeRO's; milliseconds", style="bold")
    console.print(traffic_and_time(comparison))
    equal = comparison.bitwise_equal()
    console.print(
        "Losses and final weights are bitwise equal in all modes."
        if equal
        else "Losses or final weights differ between the modes."
    )
    wrong = comparison.wrong_figures()
    for line in wrong or ["All bytes are measured as predicted, on every rank."]:
        console.print(line)
    title = f"\nGPT-2 1.5B, batch {GPT2['batch']}, {GPT2['sequence']} tokens, 16 bits: GB a device"
    console.print(title, style="bold")
    console.print(gpt2())


def memory(comparison: Comparison) -> Table:
    """Bytes of activations after forward, predicted and measured, and their peak."""
    table = plain_table("", "predicted", "measured", "vs. none", "peak")
    whole = comparison.modes["none"][0].measured if "none" in comparison.modes else 0
    for mode, ranks in comparison.modes.items():
        rank = ranks[0]
        fall = f"{100 * (rank.measured / whole - 1):.1f} %" if whole and mode != "none" else ""
        table.add_row(mode, _mb(rank.predicted), _mb(rank.measured), fall, _mb(rank.peak))
    return table


def traffic_and_time(comparison: Comparison) -> Table:
    """Bytes sent for tensor parallelism and checkpoints, and the time of a step."""
    table = plain_table("", "tensor par.", "checkpoints", "step", "vs. none")
    first = next(iter(comparison.modes))
    for mode, ranks in comparison.modes.items():
        rank = ranks[0]
        ratio = ""
        if first == "none" and mode != "none":
            pairs = zip(rank.seconds, comparison.modes["none"][0].seconds)
            ratio = f"{median(a / b for a, b in pairs):.2f} x"
        table.add_row(
            mode,
            _mb(rank.sent["tensor parallelism"]),
            _mb(rank.sent["checkpoints"]),
            f"{1e3 * median(rank.seconds):.1f}",
            ratio,
        )
    return table


def gpt2() -> Table:
    """The paper's example: what a device keeps of a 1.5B model's activations."""
    table = plain_table("kept", "GB")
    whole = 2 * formulas.activation_values(**GPT2)
    table.add_row("all, about 12 values a token and layer, times the width", _gb(whole))
    table.add_row("one checkpoint a layer", _gb(formulas.checkpoint_bytes(**GPT2)))
    parts = formulas.checkpoint_bytes(**GPT2, model_parallel=GPT2_RANKS)
    table.add_row(f"divided among {GPT2_RANKS} tensor-parallel ranks", _gb(parts))
    table.add_row("offloaded", _gb(0))
    return table


def draw(comparison: Comparison, file: Path) -> None:
    """Write the picture, a PNG: activations after forward, and over one step."""
    picture, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    picture.suptitle(
        f"Activations of a GPT: {comparison.dp} replicas over {comparison.tp} tensor-parallel ranks"
    )
    for place, (mode, ranks) in enumerate(comparison.modes.items()):
        rank = ranks[0]
        left.bar(place, rank.measured / 1e6, 0.6, color=COLOURS[mode])
        left.hlines(rank.predicted / 1e6, place - 0.4, place + 0.4, "k")
        count = max(1, len(rank.timeline) - 1)
        progress = [100 * i / count for i in range(len(rank.timeline))]
        right.plot(progress, [b / 1e6 for b in rank.timeline], color=COLOURS[mode], label=mode)
    left.set(title="After forward (line: predicted)", ylabel="MB")
    left.set_xticks(range(len(comparison.modes)), list(comparison.modes))
    right.set(title="Forward and backward", xlabel="% of the tensors made and freed", ylabel="MB")
    right.legend()
    picture.savefig(file, dpi=120, format="png")
    plt.close(picture)


def _mb(amount: int) -> str:
    return f"{amount / 1e6:.3f}"


def _gb(amount: float) -> str:
    return f"{amount / 1e9:.1f}"
