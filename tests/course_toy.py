"""A small package, written to a temporary folder, on which the course's machinery is tested."""

import sys
import textwrap
from pathlib import Path

from course import overlay, registry, source
from course.registry import Exercise, Lesson

HINTS = ("What?", "The idea.", "Almost the code.")
EXERCISES = ("toy.sums.add", "toy.sums.halve", "toy.shapes.Square.area")

SUMS = '''
    """Sums."""

    import functools
    from functools import wraps

    FACTOR = 2


    def twice(function):
        @wraps(function)
        def doubled(*args):
            return FACTOR * function(*args)

        return doubled


    @twice
    def add(a, b=1, *rest, scale: int = 1) -> int:
        """The sum,
        twice."""
        # how it is done
        return scale * (a + b + sum(rest))


    def halve(a):
        """Half of it."""
        return a / FACTOR
'''
SHAPES = '''
    """Shapes."""

    from toy.sums import add, halve


    class Square:
        def __init__(self, side):
            self.side = side

        def area(self):
            """Side times side."""
            return self.side * self.side

        @property
        def double(self):
            """Uses what it imported by name."""
            return add(self.side, self.side)
'''


def make(folder: Path) -> Path:
    """Write the package `toy` under `folder`."""
    package = folder / "toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sums.py").write_text(textwrap.dedent(SUMS))
    (package / "shapes.py").write_text(textwrap.dedent(SHAPES))
    return package


def use(tmp_path: Path, monkeypatch) -> Path:
    """Make `toy` importable and its three exercises the course; returns the learner's folder."""
    make(tmp_path)
    mine = tmp_path / "mine"
    lesson = Lesson(1, "toy", "Toy", 10, tuple(Exercise(p, 5, 1, HINTS) for p in EXERCISES))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "lessons", lambda: (lesson,))
    monkeypatch.setenv("COURSE_MINE", str(mine))
    for variable in (overlay.PIECES_VARIABLE, overlay.PRELOAD_VARIABLE):
        monkeypatch.setenv(variable, "")
    forget()
    return mine


def forget() -> None:
    """As if `toy` had never been imported."""
    overlay.restore()
    overlay._helpers.clear()
    source._parse.cache_clear()
    for name in [n for n in sys.modules if n.split(".")[0] == "toy"]:
        del sys.modules[name]
