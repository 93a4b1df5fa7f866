"""Notebooks from Markdown: exercises filled in, the same each time, nothing of the machine."""

import tempfile
import textwrap

import nbformat
import pytest

import course_toy
from course import build

LESSON = """
# 01 Toy

10 minutes.

```python
print("same each time")
```

```{exercise} toy.sums.halve
```

```python tags=["nbval-ignore-output"]
import time
print(time.time())
```
"""


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    yield course_toy.use(tmp_path, monkeypatch)
    course_toy.forget()


def cells(solved, text=LESSON):
    return build.notebook(text, solved=solved).cells


def test_an_exercise_is_a_stub_or_the_solution():
    stub, solution = cells(False)[3], cells(True)[3]
    assert stub.source.startswith("%%exercise toy.sums.halve\ndef halve(a):")
    assert stub.source.endswith("raise NotImplementedError")
    assert solution.source.startswith("%%solution toy.sums.halve\ndef halve(a):")
    assert solution.source.endswith("return a / FACTOR")
    assert stub.id == solution.id == "exercise-toy-sums-halve"


def test_the_builder_says_what_the_exercise_is():
    heading = cells(False)[2].source
    assert heading.startswith("**Exercise 2: `toy.sums.halve`.** 5 minutes, difficulty 1 of 3.")


def test_it_is_the_same_each_time_and_says_no_more_than_it_must(tmp_path):
    files = [tmp_path / name for name in ("a.ipynb", "b.ipynb")]
    for file in files:
        build.write(build.notebook(LESSON, solved=False), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    nb = nbformat.read(files[0], 4)
    assert set(nb.metadata) == {"kernelspec", "language_info"}
    assert [dict(cell.metadata) for cell in nb.cells if cell.metadata] == [
        {"tags": ["nbval-ignore-output"]}
    ]


def test_the_ids_of_other_cells_stay_when_one_is_added():
    before = {cell.id for cell in cells(False)}
    longer = LESSON.replace("# 01 Toy", "# 01 Toy\n\n```python\nx = 1\n```\n\nmore text\n")
    assert len(before - {cell.id for cell in cells(False, longer)}) <= 1
    twins = cells(False, "```python\nx = 1\n```\n\n```python\nx = 1\n```\n")
    assert twins[0].id != twins[1].id


@pytest.mark.parametrize(
    "wrong",
    [
        "```{exercise} toy.sums.halve\nx = 1\n```",
        "```{exercise}\n```",
        "```{exercise} toy.sums.halve",
    ],
)
def test_a_malformed_exercise_is_an_error(wrong):
    with pytest.raises(build.BuildError, match="exercise block is two lines"):
        build.notebook(f"text\n\n{wrong}\n\ntext\n", solved=False)


def test_outputs_that_vary_are_not_compared_and_pictures_only_in_kind():
    output = nbformat.v4.new_output("display_data", {"image/png": "AAAA", "text/plain": "<Figure>"})
    cell = nbformat.v4.new_code_cell("x", outputs=[output])
    assert build.outputs(cell) == [("image/png", ""), ("text/plain", "<Figure>")]
    cell.metadata["tags"] = ["nbval-ignore-output"]
    assert build.outputs(cell) == []


def cleaned(*outputs):
    cell = nbformat.v4.new_code_cell("x", outputs=list(outputs))
    build._clean(cell, "here")
    return cell.outputs


def stream(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


@pytest.mark.parametrize("folder", [str(build.registry.ROOT), tempfile.gettempdir(), "/Users/ada"])
def test_a_path_in_an_output_is_refused(folder):
    with pytest.raises(build.BuildError, match="here shows"):
        cleaned(stream(f"written to {folder}/x"))


def test_streams_are_joined_and_widgets_left_out():
    widget = nbformat.v4.new_output("display_data", {build.WIDGETS: {"model_id": "1f"}})
    assert [o.text for o in cleaned(stream("a\n"), stream("b\n"), widget)] == ["a\nb\n"]


def test_what_has_changed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(build.registry, "ROOT", tmp_path)
    source = tmp_path / "lessons" / "source" / "01_toy.md"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(textwrap.dedent(LESSON))
    assert build.check(run=False) == 1
    assert build.build(run=False) == 0
    assert build.check(run=False) == 0
    source.write_text(LESSON.replace("same", "not the same"))
    assert "at cell 1" in build.compare("lessons", "01_toy", run=False)[0]
