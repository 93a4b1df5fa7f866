"""The tables of `compare`, for a terminal of 80 columns and for a pipe."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from demos.measure import MODEL_STATES
from demos.results import Comparison, Run, bitwise_equal, largest_difference, wrong_figures
from demos.settings import rank_count, stage_name
from zero import formulas

TOO_LARGE = ((7e9, 8), (7e9, 64), (70e9, 64))  # parameters, ranks
SHOWN_STEPS = 6


def show(comparison: Comparison) -> None:
    """Print everything to stdout: colours in a terminal, plain text in a pipe or with NO_COLOR."""
    console = Console(highlight=False)
    runs = comparison.runs
    console.print(
        f"{comparison.task}, {formulas.human_count(comparison.parameters)} parameters; "
        f"{rank_count(comparison.world_size)} ({comparison.backend}), "
        f"{len(runs[0].losses)} steps, {runs[0].precision}\n"
    )
    _show(console, "Loss, mean over the ranks", losses(runs), _equality(runs))
    _show(console, "Memory of rank 0 in MB: kept between steps, and peak", memory(runs))
    _show(
        console,
        "A step: MB that rank 0 sends; milliseconds, mean over the ranks",
        traffic_and_time(runs),
        *(wrong_figures(comparison) or ["All bytes are measured as predicted, on every rank."]),
    )
    _show(console, "Models too large to run here: GB a rank, 16 bits, Adam", too_large())


def _show(console: Console, title: str, table: Table, *lines: str) -> None:
    console.print(title, style="bold")
    console.print(table)
    for line in lines:
        console.print(line)
    console.print()


def _equality(runs: list[Run]) -> str:
    if bitwise_equal(runs):
        what = "all runs and ranks" if len(runs) > 1 else "all ranks"
        return f"Losses and final weights are bitwise equal in {what}."
    most = largest_difference(runs)
    if most == 0:
        return "The losses are equal, the final weights are not bitwise equal."
    why = "" if runs[0].precision == "fp32" else ": DDP rounds averaged gradients to 16 bits"
    return f"The losses differ by at most {most:.1e}{why}."


def plain_table(*columns: str) -> Table:
    """An empty table: the first column to the left, numbers to the right, lines that are quiet."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def losses(runs: list[Run]) -> Table:
    """Loss by step and run, at a few steps."""
    table = plain_table("step", *(run.name for run in runs))
    for step in _some(len(runs[0].losses)):
        table.add_row(str(step + 1), *(f"{run.losses[step]:.6f}" for run in runs))
    return table


def memory(runs: list[Run]) -> Table:
    """Bytes of rank 0 by kind, predicted and measured, and the peak."""
    table = plain_table("", "", *MODEL_STATES, "together", "vs. DDP", "peak")
    whole = sum(run.ranks[0].kept for run in runs if run.stage == 0)
    for run in runs:
        rank = run.ranks[0]
        fall = f"{100 * (rank.kept / whole - 1):.1f} %" if whole and run.stage else ""
        predicted = [rank.memory_predicted[kind] for kind in MODEL_STATES]
        measured = [rank.memory[kind] for kind in MODEL_STATES]
        table.add_row(run.name, "predicted", *map(_mb, predicted), _mb(sum(predicted)))
        table.add_row("", "measured", *map(_mb, measured), _mb(rank.kept), fall, _mb(rank.peak))
    return table


def traffic_and_time(runs: list[Run]) -> Table:
    """Bytes that rank 0 sends, and where the time of a step goes."""
    table = plain_table(
        "",
        "predicted",
        "sent",
        "forward",
        "backward",
        "commun.",
        "optimizer",
        "step",
    )
    for run in runs:
        rank = run.ranks[0]
        table.add_row(
            run.name,
            _mb(rank.sent_predicted),
            _mb(rank.sent),
            *(f"{1e3 * seconds:.1f}" for seconds in run.seconds.values()),
        )
    return table


def too_large() -> Table:
    """What the formulas say of models that do not fit here (mixed precision, as in the paper)."""
    table = plain_table(
        "parameters",
        "ranks",
        *(stage_name(stage) for stage in formulas.STAGES),
    )
    for parameters, ranks in TOO_LARGE:
        cells = []
        for stage in formulas.STAGES:
            amount = f"{formulas.paper_bytes(parameters, stage, ranks) / 1e9:.1f}"
            cells.append(f"{amount} -{formulas.fall(stage, ranks):.1f} %" if stage else amount)
        table.add_row(formulas.human_count(parameters), str(ranks), *cells)
    return table


def _mb(amount: int) -> str:
    return f"{amount / 1e6:.3f}"


def _some(steps: int) -> list[int]:
    """The first step, the last, and a few evenly between them, counted from 0."""
    parts = SHOWN_STEPS - 1
    return sorted({max(0, round(part * steps / parts) - 1) for part in range(parts + 1)})
