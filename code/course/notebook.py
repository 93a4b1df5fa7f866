"""The notebook side: ``%load_ext course`` or ``import course.notebook`` brings the exercise cells.

A cell that begins with ``%%exercise PATH`` saves itself in ``mine/`` and is graded at once. In
``solutions/`` the cells begin with ``%%solution PATH``: graded the same way, and nothing is saved.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import course
from course import grading, overlay, pieces, registry, source
from course.mine import use_mine
from course.report import PASSED, Report

# For so long the first cells have the machine to themselves: to get warm, the grader computes for
# several seconds. A grading that is asked for earlier starts it at once.
SECONDS_ALONE = 30.0
# After these the piece is not put in place: the next cell would stop for ever, or die.
UNUSABLE = ("cannot-read", "endless", "died")


def load(shell) -> None:
    """Register the cell magics, put the learner's pieces in place, start the warm process.

    GPUs are hidden: the lessons run on the CPU everywhere, and show the same.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if "exercise" in shell.magics_manager.magics["cell"]:
        return
    shell.register_magic_function(exercise_cell, "cell", "exercise")
    shell.register_magic_function(solution_cell, "cell", "solution")
    shell.push({"course": course}, interactive=False)
    warm = threading.Timer(SECONDS_ALONE, grading.warm_up)
    warm.daemon = True
    warm.start()
    mine = use_mine()
    if mine.yours or mine.broken:
        print(replace(mine, stubs=[], unbegun=[]))


def exercise_cell(line: str, cell: str) -> None:
    """``%%exercise PATH``: save this cell in ``mine/``, grade it, use it from now on."""
    try:
        path = registry.find(line.strip())[1].path
    except registry.UnknownExercise as error:
        print(error)
        return
    name = pieces.name_of(path)
    if source.is_stub(cell, name):
        if path not in pieces.written():
            _use_ours(path)
            print(f"{path}: not written yet. Until it is, our code is used.")
            return
        print("This cell still holds the stub, but there is work of yours in mine/:")
    else:
        pieces.save(path, f"# {path}\n{cell}")  # one line, as %%exercise: line numbers agree
    report = grading.grade(path)
    print(report)
    _use(path, pieces.file_of(path), report)


def solution_cell(line: str, cell: str) -> None:
    """``%%solution PATH``: grade this cell without saving it; all code is ours from here on."""
    path = registry.find(line.strip())[1].path
    overlay.restore()
    _bind(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{path}.py"
        file.write_text(f"# {path}\n{cell}", encoding="utf-8")
        report = grading.grade(path, file)
    if _same_code(cell, source.reference(path)):
        print(replace(report, file=""))
    else:
        print(report)
        print("A cell in solutions/ is not saved; your own work belongs in lessons/.")


def _use(path: str, file: Path, report: Report) -> None:
    failure = report.failure
    if failure and failure.mistake in UNUSABLE:
        _use_ours(path)
        return
    try:
        overlay.install_and_load(path, file)
    except Exception as error:  # whatever a learner's file may raise when it is executed
        _use_ours(path)
        if report.outcome == PASSED:
            print(f"It cannot be used in this notebook: {type(error).__name__}: {error}")
        return
    _bind(path)
    if failure:
        print("In this notebook yours is in use all the same, so that you can try it out.")


def _use_ours(path: str) -> None:
    overlay.restore(path)
    _bind(path)


def _bind(path: str) -> None:
    """Give a function its name in the notebook, as a cell with a ``def`` would."""
    piece = source.locate(path)
    if not piece.is_method:
        module = importlib.import_module(piece.module)
        sys.modules["__main__"].__dict__[piece.name] = getattr(module, piece.name)


def _same_code(text: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def _running_shell():
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


if _running_shell() is not None:
    load(_running_shell())
