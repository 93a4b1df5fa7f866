"""A learner's piece takes the place of ours, and gives it back."""

import json
import os
import subprocess
import sys
import traceback

import pytest

import course_toy
from course import mine as whose
from course import overlay, pieces

HALVE = "# toy.sums.halve\ndef halve(a):\n    return a / FACTOR + 100\n"
AREA = "def area(self):\n    return -self.side\n"


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    yield course_toy.use(tmp_path, monkeypatch)
    course_toy.forget()


def put(path, text):
    overlay.install_and_load(path, pieces.save(path, text))


@pytest.mark.parametrize("loaded_before", [True, False])
def test_it_is_seen_by_modules_that_imported_the_name(loaded_before):
    if loaded_before:
        import toy.shapes
    put("toy.sums.halve", HALVE)
    import toy.shapes
    import toy.sums

    assert toy.sums.halve(4) == toy.shapes.halve(4) == 102
    overlay.restore("toy.sums.halve")
    assert toy.sums.halve(4) == toy.shapes.halve(4) == 2


@pytest.mark.parametrize("loaded_before", [True, False])
def test_a_method_is_replaced_in_its_class(loaded_before):
    if loaded_before:
        import toy.shapes
    put("toy.shapes.Square.area", AREA)
    import toy.shapes

    assert toy.shapes.Square(3).area() == -3
    assert toy.shapes.Square.area.__qualname__ == "Square.area"
    assert not hasattr(toy.shapes, "area")
    overlay.restore()
    assert toy.shapes.Square(3).area() == 9


def test_a_second_version_replaces_the_first():
    put("toy.sums.halve", HALVE)
    put("toy.sums.halve", HALVE.replace("100", "200"))
    import toy.shapes

    assert toy.shapes.halve(4) == 202
    overlay.restore()
    assert toy.shapes.halve(4) == 2


def test_helpers_are_visible_and_may_be_rewritten():
    text = "import math\n\ndef by(a):\n    return math.sqrt(a)\n\ndef halve(a):\n    return by(a)\n"
    put("toy.sums.halve", text)
    put("toy.sums.halve", text.replace("math.sqrt(a)", "math.sqrt(a) + 1"))
    import toy.sums

    assert toy.sums.halve(9) == 4


def test_a_helper_that_would_hide_another_name_is_refused():
    with pytest.raises(overlay.PieceError, match=r"defines twice, .* in toy\.sums itself"):
        put("toy.sums.halve", "def twice(f):\n    return f\n\ndef halve(a):\n    return 1\n")
    put("toy.sums.add", "def by(a):\n    return a\n\ndef add(a, b=1):\n    return by(a)\n")
    with pytest.raises(overlay.PieceError, match=r"another by in mine/toy\.sums\.add\.py"):
        put("toy.sums.halve", "def by(a):\n    return -a\n\ndef halve(a):\n    return by(a)\n")


def test_a_traceback_shows_the_learners_line():
    put("toy.sums.halve", "# toy.sums.halve\ndef halve(a):\n    return a / 0  # mine\n")
    import toy.sums

    try:
        toy.sums.halve(1)
    except ZeroDivisionError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename == str(pieces.file_of("toy.sums.halve"))
    assert (last.lineno, last.line) == (3, "return a / 0  # mine")


def test_other_processes_are_told(tmp_path):
    """A rank gets the pieces from its environment, before or after the module is loaded."""
    put("toy.sums.halve", HALVE)
    put("toy.shapes.Square.area", AREA)
    assert os.environ["ZERO_PRELOAD"] == "course.overlay:preload"
    assert set(json.loads(os.environ["ZERO_PIECES"])) == {
        "toy.sums.halve",
        "toy.shapes.Square.area",
    }
    code = (
        "import toy.sums, course.overlay; course.overlay.preload(); import toy.shapes;"
        "print(toy.shapes.halve(4), toy.shapes.Square(3).area())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "102.0 -3\n", done.stderr
    overlay.restore("toy.sums.halve")
    assert set(overlay.in_place()) == {"toy.shapes.Square.area"}


def test_use_mine_says_whose_code_runs():
    pieces.save("toy.sums.halve", HALVE)
    pieces.start("toy.sums.add")
    mine = whose.use_mine()
    assert (mine.yours, mine.stubs) == (["toy.sums.halve"], ["toy.sums.add"])
    assert mine.unbegun == ["toy.shapes.Square.area", "toy.shapes.share"]
    assert "Still a stub, so our code runs: toy.sums.add." in str(mine)
    (pieces.folder() / "toy.sums.halves.py").write_text(HALVE)
    said = str(whose.use_mine())
    assert "Not used, because no exercise is called toy.sums.halves: " in said
    assert "Did you mean toy.sums.halve?" in said


@pytest.mark.parametrize("loaded_before", [True, False])
@pytest.mark.parametrize("text", ["def halve(a:", "X = 1 / 0\n\ndef halve(a):\n    return a\n"])
def test_use_mine_survives_a_file_that_cannot_be_used(loaded_before, text):
    if loaded_before:
        import toy.sums
    pieces.save("toy.sums.halve", text)
    pieces.save("toy.shapes.Square.area", AREA)
    mine = whose.use_mine()
    import toy.shapes
    import toy.sums

    assert list(mine.broken) == ["toy.sums.halve"] and mine.yours == ["toy.shapes.Square.area"]
    assert toy.sums.halve(4) == toy.shapes.halve(4) == 2
