"""A grader must not reject what is right: answers that differ from our solution, and pass.

They stand in `right/NN/<exercise path>/<slug>.py`, each a whole definition, whose docstring says in
what it differs.
"""

import pytest

from course import grading, registry
from course.report import PASSED

FOLDER = registry.TESTS / "right"
RIGHT = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("file", RIGHT, ids=[f"{f.parent.name}-{f.stem}" for f in RIGHT])
def test_a_right_answer_passes(file):
    report = grading.grade(file.parent.name, file)
    assert report.outcome == PASSED, str(report)


def test_none_is_left_over():
    """An answer to an exercise that has another name by now would test nothing."""
    known = {(f"{lesson.number:02}", exercise.path) for lesson, exercise in registry.exercises()}
    assert {(f.parent.parent.name, f.parent.name) for f in RIGHT} <= known
