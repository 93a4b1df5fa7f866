"""The course: exercises in notebook cells, a grader, and the builder of the notebooks."""

from __future__ import annotations

from course.commands import check, hint, progress, reset, start
from course.mine import use_mine

__all__ = ["check", "hint", "progress", "reset", "start", "use_mine"]


def load_ipython_extension(shell) -> None:
    """``%load_ext course`` in a notebook."""
    from course import notebook

    notebook.load(shell)
