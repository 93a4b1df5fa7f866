"""What a learner can ask for, in a notebook (``course.hint(...)``) and in a terminal alike."""

from __future__ import annotations

import textwrap

from course import grading, overlay, pieces, registry, verdicts
from course.report import NOT_WRITTEN, Report

NAMES_OF_HINTS = ("a question", "the idea", "almost the code")


def check(path: str | None = None) -> None:
    """Grade one exercise, or all that were begun, and print the reports."""
    exit_status(path)


def exit_status(path: str | None = None) -> int:
    """What :func:`check` does, and 0: passed, 1: failed, 2: not written yet."""
    if path is not None:
        return _shown(grading.grade(path)).exit_code
    begun = list(pieces.written())
    if not begun:
        print("No exercise has been begun yet. The first is " + registry.exercises()[0][1].path)
        return 2
    return max(_shown(grading.grade(its_path)).exit_code for its_path in begun)


def start(path: str) -> None:
    """Make the file to write in, for those who prefer an editor to the notebook."""
    path = registry.find(path)[1].path
    print(f"Write here: {pieces.shown(pieces.start(path))}\nThen: make check EX={path}")


def hint(path: str, number: int = 1) -> None:
    """Print hint 1, 2 or 3 of an exercise: a question, the idea, almost the code."""
    _, exercise = registry.find(path)
    if number not in (1, 2, 3):
        print(f"There are hints 1, 2 and 3, no hint {number}.")
        return
    print(f"{exercise.path}, hint {number} of 3 ({NAMES_OF_HINTS[number - 1]}):\n")
    print(textwrap.dedent(exercise.hints[number - 1]).strip())


def progress() -> None:
    """Print a table of all exercises and what is solved."""
    print(verdicts.table())


def reset(path: str) -> None:
    """Start an exercise again from its stub. A copy of your version is kept."""
    path = registry.find(path)[1].path
    copy = pieces.keep(path)
    pieces.file_of(path).unlink(missing_ok=True)
    file = pieces.start(path)
    overlay.restore(path)
    if copy:
        print(f"Your version is kept in {pieces.shown(copy)}.")
    print(f"{pieces.shown(file)} is the stub again, and our code is used.")


def doctor() -> None:
    """Print whether this machine can run the course."""
    from zero.doctor import main

    main()


def _shown(report: Report) -> Report:
    print(report)
    if report.outcome == NOT_WRITTEN:
        file = pieces.shown(pieces.start(report.path))
        print(f"Write it here: {file} (signature and docstring are there already)")
    print()
    return report
