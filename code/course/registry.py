"""What a lesson and an exercise are, and the list of all of them.

Each lesson is declared in one file, ``course/exercises/lesson_NN.py``, as ``LESSON = Lesson(...)``.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "lessons"


class UnknownExercise(LookupError):
    """No lesson has an exercise of this name."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message says it all."""
        return [str(self)]


@dataclass(frozen=True)
class Exercise:
    """One function or method of the package that the learner writes.

    ``path`` names it (``zero.flat.flatten_params``); ``difficulty`` is 1, 2 or 3; ``hints`` are
    three texts: a question, the idea, almost the code.
    """

    path: str
    minutes: int
    difficulty: int
    hints: tuple[str, str, str]

    def __post_init__(self):
        if self.difficulty not in (1, 2, 3):
            raise ValueError(f"{self.path}: difficulty is 1, 2 or 3, not {self.difficulty}")
        if len(self.hints) != 3 or not all(self.hints):
            raise ValueError(f"{self.path}: three hints are needed, got {len(self.hints)}")


@dataclass(frozen=True)
class Lesson:
    """A lesson and its exercises, in the order in which they are solved."""

    number: int
    topic: str
    title: str
    minutes: int
    exercises: tuple[Exercise, ...] = ()

    @property
    def stem(self) -> str:
        """The name that its notebook, its source and its grader share: ``01_flat``."""
        return f"{self.number:02}_{self.topic}"

    @property
    def grader(self) -> Path:
        return TESTS / f"test_{self.stem}.py"

    def wrong_answers(self, exercise: Exercise) -> list[Path]:
        """The catalogued wrong answers of an exercise, one file each."""
        folder = TESTS / "wrong" / f"{self.number:02}" / exercise.path
        return sorted(folder.glob("*.py"))


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons, in order."""
    folder = importlib.import_module("course.exercises")
    names = sorted(m.name for m in pkgutil.iter_modules(folder.__path__))
    return tuple(importlib.import_module(f"course.exercises.{n}").LESSON for n in names)


def exercises() -> list[tuple[Lesson, Exercise]]:
    """All exercises with their lessons, in order."""
    return [(lesson, exercise) for lesson in lessons() for exercise in lesson.exercises]


def find(path: str) -> tuple[Lesson, Exercise]:
    """The exercise of this path; its last part is enough if only one exercise ends so."""
    everything = exercises()
    found = [(ls, ex) for ls, ex in everything if ex.path == path]
    found = found or [(ls, ex) for ls, ex in everything if ex.path.endswith(f".{path}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownExercise(f"{path!r} may be {' or '.join(ex.path for _, ex in found)}")
    remedy = suggestion(path) or f"The exercises are: {', '.join(ex.path for _, ex in everything)}."
    raise UnknownExercise(f"There is no exercise {path!r}. {remedy}")


def suggestion(path: str) -> str:
    """ "Did you mean ...?" for a path that is none, if it is close to one; else nothing."""
    near = difflib.get_close_matches(path, [ex.path for _, ex in exercises()], n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else ""
