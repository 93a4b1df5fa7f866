"""The grader is measured by what it rejects.

Every stub counts as not written, and each wrong answer in `wrong/` is rejected by the check, and
with the hint, that its first lines name (that our text passes, graded as a learner's, is in the
stored outputs of `solutions/`, which `test_notebooks.py` runs again):

    check: test_padding            the check that must be the first to fail
    mistake: rounded-down          the mistake that it must recognise (may be empty; "a or b"
                                   where it depends on who comes first)
    says: belong to nobody         words that the report must contain (may be left out)
"""

import ast
import re

import pytest

from course import grading, pieces, registry, source
from course.report import FAILED, NOT_WRITTEN

FEWEST = 6
EXERCISES = registry.exercises()
PATHS = [exercise.path for _, exercise in EXERCISES]
WRONG = [(ex.path, file) for lesson, ex in EXERCISES for file in lesson.wrong_answers(ex)]


@pytest.mark.parametrize("path", PATHS)
def test_the_stub_is_not_written_yet(path, tmp_path):
    file = tmp_path / f"{path}.py"
    file.write_text(source.stub(path))
    assert ast.get_docstring(source.locate(path).node), f"{path} has no docstring to work from"
    assert grading.grade(path, file).outcome == NOT_WRITTEN
    assert pieces.problem(path, file.read_text()) is None


@pytest.mark.parametrize(("path", "file"), WRONG, ids=[f"{p}-{f.stem}" for p, f in WRONG])
def test_a_wrong_answer_is_rejected(path, file):
    wanted = expectation(file)
    report = grading.grade(path, file)
    assert report.outcome == FAILED, f"{file.stem} passed {report.total} checks of {path}"
    failed = report.failure
    assert failed.name.split("[")[0] == wanted["check"], str(report)
    assert failed.mistake in wanted["mistake"].split(" or "), str(report)
    assert wanted.get("says", "") in str(report)


@pytest.mark.parametrize("path", PATHS)
def test_there_are_enough_wrong_answers(path):
    found = [file for its_path, file in WRONG if its_path == path]
    assert len(found) >= FEWEST, f"{path} has {len(found)} wrong answers, it needs {FEWEST}"


def test_no_wrong_answer_is_left_over():
    """A wrong answer whose exercise has another name by now would never be graded."""
    everything = set((registry.TESTS / "wrong").rglob("*.py"))
    assert everything == {file for _, file in WRONG}


def expectation(file) -> dict[str, str]:
    """The `name: value` lines of a wrong answer's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    found = dict(re.findall(r"^(check|mistake|says):[ ]*(.*)$", text, re.MULTILINE))
    assert "check" in found and ("mistake" in found or "says" in found), (
        f"{file}: what is expected?"
    )
    return {"mistake": "", **found}
