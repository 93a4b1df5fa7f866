"""Whatever a learner writes, there is a report that helps, and the next grading works."""

import os
import textwrap

import pytest

import course_toy
from course import commands, grading, limits, pieces, source, verdicts

HALVE = "toy.sums.halve"
SHARE = "toy.shapes.share"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("toy")


@pytest.fixture(scope="module", autouse=True)
def mine(folder):
    """One warm process for all tests here: it must survive everything that they send it."""
    with pytest.MonkeyPatch.context() as patch:
        mine = course_toy.use(folder, patch)
        patch.setenv("PYTHONPATH", str(folder))
        patch.setenv(limits.VARIABLE, "2")
        grading.stop()
        yield mine
        grading.stop()
        course_toy.forget()


def graded(path, body):
    """Grade a function with this body, and say what the learner reads."""
    name = pieces.name_of(path)
    argument = "flat" if path == SHARE else "a"
    text = f"def {name}({argument}):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    pieces.save(path, text + "\n")
    report = grading.grade(path)
    return report, str(report)


def test_right():
    report, text = graded(HALVE, "return a / 2")
    assert (report.outcome, report.exit_code, report.total) == ("passed", 0, 2)
    assert text == f"{HALVE}: passed, 2 checks.\nGraded: mine/{HALVE}.py"


def test_not_written():
    pieces.save(HALVE, source.stub(HALVE))
    report = grading.grade(HALVE)
    assert report.exit_code == 2 and "not written yet" in str(report)


def test_a_known_mistake_is_named():
    report, text = graded(HALVE, "print('seen', a)\nreturn a * 2")
    assert (report.exit_code, report.failure.mistake) == (1, "doubled")
    assert "at check 1 of 2" in text and "Half of 4 is 2:" in text
    assert "halve(4): that is twice 4." in text and "expected  2.0" in text
    assert "Printed meanwhile:\n    seen 4" in text
    assert f'course.hint("{HALVE}", 1)' in text


@pytest.mark.parametrize(
    ("body", "mistake", "said"),
    [
        ("return a / ", "cannot-read", "Python cannot read line 2"),
        ("return b", "", "NameError: name 'b' is not defined"),
        ("if a:\n    return 2.0\nraise NotImplementedError", "not-implemented", "not written yet"),
        ("while True:\n    a = 1", "endless", "is there a loop without an end?"),
        ("import os\nos._exit(3)", "died", "ended in the middle of a check (exit code 3)"),
        ("import os\nos.kill(os.getpid(), 11)", "died", "(signal 11)"),
        ("import sys\nsys.exit(0)", "", "SystemExit"),
        ("return 2.0", "", "assert 2.0 == 0"),
    ],
)
def test_whatever_goes_wrong(body, mistake, said):
    report, text = graded(HALVE, body)
    assert (report.exit_code, report.failure.mistake) == (1, mistake), text
    assert said in text


def test_the_learners_own_line_is_shown():
    _, text = graded(HALVE, "b = a\nreturn b / None")
    assert f"line 3 of mine/{HALVE}.py, in halve:\n            return b / None" in text


@pytest.mark.parametrize(
    ("body", "mistake", "said"),
    [
        (
            "from zero import comm\nreturn comm.all_reduce(flat, op='sum')",
            "sum-for-mean",
            "2 times",
        ),
        ("while True:\n    flat = flat + 1", "endless", "raised TakesTooLong: This computes"),
        ("return flat / None", "", "return flat / None"),
        (
            "from zero import comm\nif comm.rank() == 0:\n    comm.all_reduce(flat)\nreturn flat",
            "deadlock",
            "rank 0 waited in",
        ),
    ],
)
def test_what_goes_wrong_on_the_ranks(body, mistake, said):
    report, text = graded(SHARE, body)
    assert (report.exit_code, report.failure.mistake) == (1, mistake), text
    assert said in text


def test_printing_on_the_ranks_is_shown_if_it_fails():
    _, text = graded(SHARE, "print('here', flat.sum().item())\nreturn flat")
    assert "here 4.0" in text


def test_progress_remembers_the_verdict_on_this_text(capsys):
    graded(HALVE, "return a / 2")
    assert verdicts.state(HALVE) == "passed"
    pieces.save(HALVE, "def halve(a):\n    return a\n")
    assert verdicts.state(HALVE) == "written, not checked"
    assert commands.exit_status(HALVE) == 1
    assert verdicts.state(HALVE) == "failed"
    commands.progress()
    assert "of 4 exercises passed" in capsys.readouterr().out


def test_reset_keeps_a_copy(capsys):
    pieces.save(HALVE, "def halve(a):\n    return 77\n")
    commands.reset(HALVE)
    assert pieces.read(HALVE) == f"# {HALVE}\n{source.stub(HALVE)}"
    kept = sorted((pieces.folder() / ".history" / HALVE).glob("*.py"))[-1]
    assert "77" in kept.read_text()
    assert f"{HALVE}/{kept.name}" in capsys.readouterr().out


def test_the_environment_of_the_one_who_asks_is_left_alone():
    before = dict(os.environ)
    graded(HALVE, "return a / 2")
    assert dict(os.environ) == before
