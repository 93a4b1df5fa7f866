"""Grading with plain pytest: the same checks, the same verdicts, "not written yet" apart."""

import os
import subprocess
import sys

import pytest

import course_toy
from course import pieces, registry, verdicts

HALVE, AREA = "toy.sums.halve", "toy.shapes.Square.area"


@pytest.fixture
def run(tmp_path, monkeypatch):
    course_toy.use(tmp_path, monkeypatch)
    grader = registry.lessons()[0].grader

    def run(*options):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # nbval takes seconds to import
        settings = ["-p", "pytest_timeout", "-p", "no:cacheprovider", "-rA", *options]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *settings, str(grader), "--deselect", "test_mean"],
            env=env,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    yield run
    course_toy.forget()


def test_our_solutions(run):
    assert "4 passed" in run("--solutions")


def test_nothing_is_written_yet(run):
    out = run()
    assert "4 not written yet" in out and "passed" not in out and "skipped" not in out


def test_the_learners_pieces_one_by_one(run):
    """A failing piece fails its own checks only, and no verdict comes from some of the checks."""
    pieces.save(AREA, "def area(self):\n    return self.side**2\n")
    pieces.save(HALVE, "def halve(a):\n    return a * 2\n")
    out = run()
    assert "1 failed, 2 passed, 1 not written yet" in out
    assert "halve(4): that is twice 4." in out and "mine/toy.sums.halve.py" in out
    assert verdicts.state(HALVE) == "failed" and verdicts.state(AREA) == "passed"

    pieces.save(HALVE, "def halve(a):\n    return a * 0\n")
    assert "1 passed" in run("-k", "test_zero")
    assert verdicts.state(HALVE) == "written, not checked"


def test_one_exercise_with_another_file(run, tmp_path):
    answer = tmp_path / "answer.py"
    answer.write_text("def halve(a):\n    return a / FACTOR\n")
    assert "2 passed" in run("--exercise", HALVE, "--answer", str(answer))
    assert pieces.read(HALVE) is None
