"""A progress bar on stderr, in a terminal only: a pipe gets none."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Bar:
    """A bar of `total` steps, inside a `with` block; it vanishes at the end."""

    def __init__(self, total: int):
        self._progress = Progress(
            TextColumn("{task.description:8}"),
            BarColumn(),
            TextColumn("{task.completed} of {task.total} steps"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def name(self, text: str) -> None:
        """What is running now."""
        self._progress.update(self._task, description=text)

    def advance(self, line: str = "") -> None:
        """One step more; `line` is what rank 0 printed, and not shown."""
        self._progress.advance(self._task)
