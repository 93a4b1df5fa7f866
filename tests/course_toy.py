"""A small package, written to a temporary folder, on which the course's machinery is tested."""

import sys
import textwrap
from pathlib import Path

from course import overlay, registry, source
from course.registry import Exercise, Lesson

HINTS = ("What?", "The idea.", "Almost the code.")
EXERCISES = ("toy.sums.add", "toy.sums.halve", "toy.shapes.Square.area", "toy.shapes.share")

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


    def share(flat):
        """The mean over all ranks."""
        from zero import comm

        return comm.all_reduce(flat)
'''

GRADER = '''
    import torch
    from course.checks import compare_tensors, compare_values, exercise, on_ranks, scaled
    from toy.shapes import Square, share
    from toy.sums import halve


    @exercise("toy.sums.halve")
    def test_four():
        """Half of 4 is 2."""
        compare_values(2.0, halve(4), "halve(4)", known=[(8, "doubled", "that is twice 4")])


    @exercise("toy.sums.halve")
    def test_zero():
        """Half of nothing is nothing"""
        assert halve(0) == 0


    @exercise("toy.shapes.Square.area")
    def test_area():
        assert Square(3).area() == 9


    def shared(rank, world_size):
        return share(torch.full((4,), float(rank)))


    @exercise("toy.shapes.share")
    def test_mean():
        """Every rank has the mean"""
        for got in on_ranks(shared, 2, timeout=20):
            expected = torch.full((4,), 0.5)
            compare_tensors(expected, got, "the mean", known=[scaled(2, "sum-for-mean", "a sum")])
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
    """Make `toy` importable and its exercises the course; returns the learner's folder."""
    make(tmp_path)
    mine = tmp_path / "mine"
    lesson = Lesson(1, "toy", "Toy", 10, tuple(Exercise(p, 5, 1, HINTS) for p in EXERCISES))
    grader = tmp_path / "lessons" / "test_01_toy.py"
    grader.parent.mkdir()
    grader.write_text(textwrap.dedent(GRADER))
    (grader.parent / "conftest.py").write_text((registry.TESTS / "conftest.py").read_text())
    monkeypatch.setattr(registry, "TESTS", grader.parent)
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
