"""Whose code runs: everything that the learner has written is put in place, and reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from course import overlay, pieces, registry, verdicts
from course.report import FAILED, NOT_WRITTEN


@dataclass
class Mine:
    """Whose code runs, exercise by exercise (paths).

    ``yours`` are in place (``failing`` of them did not pass their last check), ``stubs`` have a
    file with nothing in it yet, ``broken`` have a file that cannot be used, and why; for these
    two, and for ``unbegun``, which have no file, our code runs. ``strangers`` are files that no
    exercise is named like.
    """

    yours: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    stubs: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    unbegun: list[str] = field(default_factory=list)
    strangers: list[Path] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"Your own code runs for: {', '.join(self.yours) or 'nothing yet'}."]
        if self.failing:
            lines.append(f"Yours, though its last check failed: {', '.join(self.failing)}.")
        if self.stubs:
            lines.append(f"Still a stub, so our code runs: {', '.join(self.stubs)}.")
        lines += [f"Cannot be used, so our code runs: {p}. {why}" for p, why in self.broken.items()]
        for file in self.strangers:
            what = f"Not used, because no exercise is called {file.stem}: {pieces.shown(file)}."
            lines.append(f"{what} {registry.suggestion(file.stem)}".strip())
        if self.unbegun:
            lines.append(f"Not begun, so our code runs: {', '.join(self.unbegun)}.")
        return "\n".join(lines)


def use_mine() -> Mine:
    """Put all that the learner has written in place, here and in all ranks; say what is whose.

    Call it before other code of the package is imported. It raises nothing: a file that cannot be
    used is named, and ours is used in its place.
    """
    mine = Mine(strangers=pieces.strangers())
    for path, state in verdicts.states().items():
        if state == NOT_WRITTEN:
            (mine.stubs if pieces.file_of(path).exists() else mine.unbegun).append(path)
        elif state == verdicts.BROKEN:
            mine.broken[path] = pieces.problem(path, pieces.read(path))
        elif _in_place(path, mine):
            mine.yours.append(path)
            mine.failing += [path] if state == FAILED else []
    return mine


def _in_place(path: str, mine: Mine) -> bool:
    try:
        overlay.install_and_load(path, pieces.file_of(path))
    except Exception as error:  # whatever a learner's file may raise when it is executed
        overlay.restore(path)
        mine.broken[path] = f"{type(error).__name__}: {error}"
        return False
    return True
