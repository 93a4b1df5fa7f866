"""The table of `compare --offload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from demos.results import bitwise_equal
from demos.settings import Training, rank_count
from demos.table import plain_table
from zero import formulas

if TYPE_CHECKING:
    from demos.offload import Run


def show(training: Training, runs: list[Run]) -> None:
    """Print everything to stdout."""
    console = Console(highlight=False)
    console.print(
        f"{training.task}, {formulas.human_count(runs[0].ranks[0].parameters)} parameters; "
        f"{rank_count(len(runs[0].ranks))}, {training.steps} steps, {training.precision}\n"
    )
    title = "Memory of rank 0 in GB: model states, predicted; the whole process at its peak"
    console.print(title, style="bold")
    console.print(memory(runs))
    console.print(
        "On disk: the optimizer states of one slice at a time are in memory. A process also holds "
        "Python, libraries, activations and buckets, and at stage 3 the units that are gathered."
    )
    console.print(
        "Losses and final weights are bitwise equal in all runs and ranks."
        if bitwise_equal(runs)
        else "Losses or final weights differ between the runs."
    )


def memory(runs: list[Run]) -> Table:
    """A row a run: model states in memory, predicted, and what the process occupied."""
    table = plain_table("", "model states", "fall", "whole process", "fall")
    first = runs[0]
    for run in runs:
        states, peak = run.states_in_memory, run.ranks[0].peak
        falls = [first.states_in_memory - states, first.ranks[0].peak - peak]
        states_fell, peak_fell = (_gb(fall) if run is not first else "" for fall in falls)
        table.add_row(run.name, _gb(states), states_fell, _gb(peak), peak_fell)
    return table


def _gb(amount: int) -> str:
    return f"{amount / 1e9:.3f}"
