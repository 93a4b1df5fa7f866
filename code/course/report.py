"""What a learner reads after a check: what was expected, what came, and on which of their lines."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from course import pieces

PASSED, FAILED, NOT_WRITTEN = "passed", "failed", "not written yet"
EXIT_CODES = {PASSED: 0, FAILED: 1, NOT_WRITTEN: 2}
RANK_MISTAKES = {"deadlock": "deadlock", "timeout": "endless", "died": "died"}
LINES_PRINTED = 20


@dataclass
class Check:
    """One check of one exercise: its name, what it asks for, how it went.

    ``mistake`` is the short name of a known mistake (``sum-for-mean``), where one was recognised.
    """

    name: str
    title: str
    outcome: str
    text: str = ""
    mistake: str = ""
    printed: str = ""


@dataclass
class Report:
    """The verdict on one exercise; ``file`` is what was graded, empty for our own solution."""

    path: str
    file: str
    outcome: str
    total: int = 0
    checks: list[Check] = field(default_factory=list)

    @property
    def failure(self) -> Check | None:
        return next((c for c in self.checks if c.outcome == FAILED), None)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def as_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> Report:
        return cls(**{**data, "checks": [Check(**c) for c in data["checks"]]})

    def __str__(self) -> str:
        graded = f"Graded: {pieces.shown(Path(self.file))}" if self.file else "Graded: our solution"
        if self.outcome == NOT_WRITTEN:
            return f"{self.path}: not written yet. Until it is, our code is used."
        if self.outcome == PASSED:
            return f"{self.path}: passed, {_count(self.total, 'check')}.\n{graded}"
        return "\n".join(self._lines_of_failure(graded))

    def _lines_of_failure(self, graded: str) -> list[str]:
        check = self.failure
        number = self.checks.index(check) + 1
        where = f", at check {number} of {self.total}" if self.total else ""
        lines = [f"{self.path}: not right yet{where}.", graded, ""]
        if check.title:
            lines += [check.title + ":", ""]
        lines.append(_indent(check.text))
        printed = [line for line in check.printed.splitlines() if "zero: gloo" not in line]
        if any(printed):
            lines += ["", "Printed meanwhile:", _indent("\n".join(printed[-LINES_PRINTED:]))]
        return [*lines, "", f'Hints: course.hint("{self.path}", 1)   make hint EX={self.path} N=1']


def cannot_grade(path: str, file: Path, text: str, mistake: str = "") -> Report:
    """A failure that no check found: the file could not be graded at all."""
    check = Check("", "", FAILED, text, mistake)
    return Report(path, str(file), FAILED, 0, [check])


def explain(excinfo, file: Path | None) -> tuple[str, str]:
    """Text for a learner, and the name of the mistake if it is a known one.

    ``excinfo`` is pytest's ExceptionInfo, ``file`` the learner's file.
    """
    error = excinfo.value
    kind = type(error).__name__
    mistake = getattr(error, "mistake", "")
    if kind in ("CheckFailed", "NotUsable"):
        return str(error), mistake
    place = own_lines(error.__traceback__, file)
    if kind == "Failed" and "Timeout" in str(error):
        return f"This takes too long. It was here:\n{place}", "endless"
    if kind == "TakesTooLong":
        return f"{error}\n{place}", "endless"
    if kind == "RankError":
        endless = "TakesTooLong" in str(error)
        return str(error), "endless" if endless else RANK_MISTAKES.get(error.kind, mistake)
    if isinstance(error, NotImplementedError):
        return f"NotImplementedError: a part of it is not written yet.\n{place}", "not-implemented"
    if kind == "NameError":
        place += (
            "\nIt sees its module's names, not the notebook's: import what it needs in the cell."
        )
    return f"{kind}: {error}\n{place}", mistake


def own_lines(tb: TracebackType | None, file: Path | None) -> str:
    """The learner's lines of a traceback; if none is the learner's, the last of this project."""
    frames = traceback.extract_tb(tb)
    own = [f for f in frames if file is not None and Path(f.filename) == file]
    if not own:
        project = [f for f in frames if "site-packages" not in f.filename]
        own = (project or frames)[-1:]
    return "\n".join(
        f"    line {f.lineno} of {pieces.shown(Path(f.filename))}, in {f.name}:\n        {f.line}"
        for f in own[-3:]
    )


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
