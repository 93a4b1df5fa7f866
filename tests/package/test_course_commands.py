"""`python -m course`: what it prints, and its exit status."""

import pytest

import course_toy
from course import __main__ as cli
from course import pieces, registry

HALVE = "toy.sums.halve"


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    yield course_toy.use(tmp_path, monkeypatch)
    course_toy.forget()


def test_an_exercise_without_a_file_is_started_and_not_written(capsys):
    assert cli.main(["check", HALVE]) == 2
    assert f"Write it here: mine/{HALVE}.py" in capsys.readouterr().out
    assert pieces.file_of(HALVE).exists()
    assert cli.main(["check"]) == 2


def test_what_cannot_be_read_has_failed(capsys):
    pieces.save(HALVE, "def halve(a:")
    assert cli.main(["check", HALVE]) == 1
    assert cli.main(["check"]) == 1
    assert "Python cannot read line 1" in capsys.readouterr().out


def test_an_unknown_exercise_is_neither_passed_nor_failed(capsys):
    assert cli.main(["check", "toy.sums.halves"]) == 64
    assert "Did you mean toy.sums.halve?" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "text"), [("1", "What?"), ("3", "Almost"), ("4", "no hint 4")])
def test_hints(number, text, capsys):
    assert cli.main(["hint", "halve", number]) == 0
    assert text in capsys.readouterr().out


def test_a_short_name_must_be_the_only_one():
    assert registry.find("halve")[1].path == HALVE
    with pytest.raises(registry.UnknownExercise, match="The exercises are"):
        registry.find("xyz")


def test_progress_and_start(capsys):
    assert cli.main(["start", HALVE]) == 0
    assert cli.main(["progress"]) == 0
    out = capsys.readouterr().out
    assert "0 of 4 exercises passed" in out and "01 Toy (10 min)" in out
