"""What is solved, what is open: the last verdict on each text, in ``mine/.verdicts.json``."""

from __future__ import annotations

import hashlib
import json

from course import pieces, registry, source
from course.report import NOT_WRITTEN, PASSED

NOT_CHECKED = "written, not checked"
BROKEN = "cannot be read"


def record(path: str, outcome: str) -> None:
    """Remember the verdict on the present text of the learner's file."""
    text = pieces.read(path)
    if text is None:
        return
    verdicts = _load()
    verdicts[path] = {"text": _digest(text), "outcome": outcome}
    file = pieces.folder() / ".verdicts.json"
    file.write_text(json.dumps(verdicts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def state(path: str) -> str:
    """One word for an exercise: "not written yet", "written, not checked", "passed" or "failed"."""
    text = pieces.read(path)
    if text is None or source.is_stub(text, pieces.name_of(path)):
        return NOT_WRITTEN
    if pieces.problem(path, text):
        return BROKEN
    verdict = _load().get(path, {})
    return verdict["outcome"] if verdict.get("text") == _digest(text) else NOT_CHECKED


def states() -> dict[str, str]:
    """The state of every exercise, in the order of the lessons."""
    return {exercise.path: state(exercise.path) for _, exercise in registry.exercises()}


def table() -> str:
    """All exercises, lesson by lesson: state, minutes, difficulty."""
    lines, solved = [], 0
    for lesson in registry.lessons():
        lines += ["", f"{lesson.number:02} {lesson.title} ({lesson.minutes} min)"]
        for exercise in lesson.exercises:
            now = state(exercise.path)
            solved += now == PASSED
            stars = "*" * exercise.difficulty
            lines.append(f"   {exercise.path:<44} {stars:<3} {exercise.minutes:>3} min   {now}")
    return "\n".join([f"{solved} of {len(registry.exercises())} exercises passed", *lines])


def _load() -> dict:
    file = pieces.folder() / ".verdicts.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
