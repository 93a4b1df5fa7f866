"""The course: exercises in notebook cells, a grader, and the builder of the notebooks."""

from __future__ import annotations

__all__ = ["check", "doctor", "hint", "progress_table", "reset", "use_mine"]


def load_ipython_extension(shell) -> None:
    """``%load_ext course`` in a notebook."""
    from course import notebook

    notebook.load(shell)
