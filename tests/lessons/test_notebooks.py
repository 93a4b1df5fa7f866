"""The notebooks are what their sources make; they run unsolved, and solved with their outputs."""

import os
import re
import subprocess
import sys

import nbformat
import pytest

from course import build, registry

SECONDS = 900
TOGETHER = 6_000_000  # bytes, all notebooks


@pytest.mark.parametrize("kind", ["lessons", "solutions"])
@pytest.mark.parametrize("name", build.sources())
def test_a_notebook_is_what_its_source_makes(name, kind):
    assert build.compare(kind, name, run=False) == []


def test_each_lesson_has_its_exercises_in_order():
    for lesson in registry.lessons():
        cells = build.made("lessons", lesson.stem).cells
        found = [c.source.split()[1] for c in cells if c.source.startswith("%%exercise")]
        assert found == [exercise.path for exercise in lesson.exercises], lesson.stem
        assert cells[0].source.startswith(f"# {lesson.number:02} {lesson.title}\n")
        assert f"{lesson.minutes} minutes" in cells[0].source, lesson.stem


def test_our_solutions_pass():
    """So say the stored outputs, which the last test here sees come again."""
    for lesson in registry.lessons():
        notebook = nbformat.read(folder("solutions") / f"{lesson.stem}.ipynb", as_version=4)
        found = []
        for cell in notebook.cells:
            if cell.source.startswith("%%solution"):
                path, verdict = cell.outputs[0].text.split(": ", 1)
                count = re.fullmatch(r"passed, (\d+) checks\.\nGraded: our solution\n", verdict)
                assert count and int(count[1]) >= 2, verdict
                assert not cell.metadata.get("tags"), "nbval must compare it"
                found.append(path)
        assert found == [exercise.path for exercise in lesson.exercises], lesson.stem


def test_no_notebook_without_a_source():
    names = {
        file.stem for kind in ("lessons", "solutions") for file in folder(kind).glob("*.ipynb")
    }
    assert names == set(build.sources())
    files = [file for kind in ("lessons", "solutions") for file in folder(kind).glob("*.ipynb")]
    assert sum(file.stat().st_size for file in files) < TOGETHER


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("kind", "how"), [("lessons", "--nbval-lax"), ("solutions", "--nbval")])
def test_they_run_in_a_clean_kernel(kind, how, tmp_path):
    """Unsolved without an exception; solved with the outputs that are stored in them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", how, folder(kind)],
        cwd=registry.ROOT,
        env={**os.environ, "COURSE_MINE": str(tmp_path), "PYTHONPATH": str(registry.ROOT / "code")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir()), "running the notebooks has written to mine/"


def folder(kind):
    return registry.ROOT / kind
