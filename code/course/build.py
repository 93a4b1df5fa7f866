"""Build the notebooks: ``lessons/source/NN_topic.md`` becomes ``lessons/`` and ``solutions/``.

The source is jupytext's Markdown. An exercise is a fenced block that names its path and is empty:

    ```{exercise} zero.flat.flatten_params
    ```

In ``lessons/`` it becomes a cell with the stub, in ``solutions/`` one with our source text, and
the notebook is executed. Both are made from the package's source at each build, and the result is
the same at each build.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course import registry, source

EXERCISE = re.compile(r"^```\{exercise\}[ \t]+(\S+)[ \t]*\n```[ \t]*$", re.MULTILINE)
VARYING = ("nbval-ignore-output", "nbval-skip", "raises-exception")
WIDGETS = "application/vnd.jupyter.widget-view+json"
SECONDS_PER_CELL = 120
# What would differ on another machine has no place in a notebook.
PRIVATE = re.compile(
    rf"{re.escape(str(registry.ROOT))}|{re.escape(tempfile.gettempdir())}/|ipykernel_\d|/home/|/Users/"
)


class BuildError(ValueError):
    """The source of a lesson cannot become a notebook; the text says where and why."""


def build(names: list[str] | None = None, *, run: bool = True) -> int:
    """Write the notebooks of these lessons (``01_flat``), or of all. Returns an exit status."""
    for name in names or sources():
        write(made("lessons", name), _file("lessons", name))
        solved = made("solutions", name)
        if run:
            execute(solved, name)
        write(solved, _file("solutions", name))
        print(f"{name}: lessons and solutions written")
    return 0


def check(names: list[str] | None = None, *, run: bool = True) -> int:
    """Build in memory and compare with the files; prints each difference. 0: none, 1: some."""
    differences = []
    for name in names or sources():
        for kind in ("lessons", "solutions"):
            differences += compare(kind, name, run=run and kind == "solutions")
    print("\n".join(differences) or "The notebooks are what their sources make.")
    return int(bool(differences))


def compare(kind: str, name: str, *, run: bool) -> list[str]:
    """How the file of one notebook differs from what its source makes; empty if it does not."""
    file = _file(kind, name)
    label = f"{kind}/{file.name}"
    if not file.exists():
        return [f"{label} is missing: run `make lessons`"]
    there, fresh = nbformat.read(file, 4), made(kind, name)
    if without_outputs(there) != without_outputs(fresh):
        cells = zip(there.cells, fresh.cells)
        first = next((i for i, (a, b) in enumerate(cells) if _bare(a) != _bare(b)), "the last")
        return [f"{label} is not what its source makes, at cell {first}: run `make lessons`"]
    if not run:
        return []
    execute(fresh, name)
    return [
        f"{label}: the output of cell {i} has changed\n  was  {a!r}\n  is   {b!r}"
        for i, (a, b) in enumerate(zip(map(outputs, there.cells), map(outputs, fresh.cells)))
        if a != b
    ]


def sources() -> list[str]:
    """The names of all lessons that have a source, in order."""
    return sorted(file.stem for file in (registry.ROOT / "lessons" / "source").glob("*.md"))


def made(kind: str, name: str) -> NotebookNode:
    """The notebook of one lesson, not executed. ``kind`` is "lessons" or "solutions"."""
    file = registry.ROOT / "lessons" / "source" / f"{name}.md"
    return notebook(file.read_text(encoding="utf-8"), solved=kind == "solutions")


def notebook(text: str, *, solved: bool) -> NotebookNode:
    """A notebook from a lesson's Markdown: stubs in the exercise cells, or solutions."""
    import jupytext

    wrong = re.search(r"^```\{exercise\}.*$", EXERCISE.sub("", text), re.MULTILINE)
    if wrong:
        raise BuildError(f"an exercise block is two lines, the path and the fence: {wrong[0]!r}")
    nb = jupytext.reads(EXERCISE.sub(lambda found: _exercise(found[1], solved), text), "md")
    nb.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nb.nbformat, nb.nbformat_minor = 4, 5
    taken: dict[str, int] = {}
    for cell in nb.cells:
        cell.id = _identity(cell, taken)
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
    nbformat.validate(nb)
    return nb


def execute(nb: NotebookNode, name: str) -> None:
    """Run a solved notebook in place, as a reader without any work of their own would."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    with tempfile.TemporaryDirectory() as nobodys:
        own = {"COURSE_MINE": nobodys, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        before = {variable: os.environ.get(variable) for variable in own}
        os.environ.update(own)
        try:
            NotebookClient(
                nb,
                timeout=SECONDS_PER_CELL,
                kernel_name="python3",
                extra_arguments=["--log-level=ERROR"],
                record_timing=False,
                resources={"metadata": {"path": str(registry.ROOT / "lessons")}},
            ).execute()
        except CellExecutionError as error:
            raise BuildError(f"{name}: a cell raises an exception:\n{error}") from None
        finally:
            for variable, value in before.items():
                if value is None:
                    del os.environ[variable]
                else:
                    os.environ[variable] = value
    nb.metadata.pop("widgets", None)
    nb.metadata.language_info = {"name": "python"}
    for number, cell in enumerate(nb.cells):
        _clean(cell, f"{name}, cell {number}")


def write(nb: NotebookNode, file: Path) -> None:
    """Write a notebook in one canonical form."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(nb, indent=1, ensure_ascii=False, sort_keys=True)
    file.write_text(nbformat.writes(nbformat.reads(text, 4)) + "\n", encoding="utf-8")


def without_outputs(nb: NotebookNode) -> dict:
    """All of a notebook but what running it has added."""
    bare = copy.deepcopy(nb)
    bare.cells = [_bare(cell) for cell in bare.cells]
    return bare


def outputs(cell: NotebookNode) -> list[tuple[str, str]]:
    """The outputs of a cell that must be the same at each run: kind and text; pictures unseen."""
    if cell.cell_type != "code" or set(cell.metadata.get("tags", [])) & set(VARYING):
        return []
    found = []
    for output in cell.outputs:
        data = output.get("data", {"stream": output.get("text", "")})
        found += [(k, "" if k.startswith("image/") else str(v)) for k, v in sorted(data.items())]
    return found


def _exercise(path: str, solved: bool) -> str:
    """A line that says what the exercise is, and its cell."""
    lesson, exercise = registry.find(path)
    number = lesson.exercises.index(exercise) + 1
    words = f"{exercise.minutes} minutes, difficulty {exercise.difficulty} of 3"
    heading = f'**Exercise {number}: `{path}`.** {words}. Stuck? `course.hint("{path}", 1)`'
    magic, text = ("solution", source.reference) if solved else ("exercise", source.stub)
    return f"{heading}\n\n```python\n%%{magic} {path}\n{text(path)}```"


def _identity(cell: NotebookNode, taken: dict[str, int]) -> str:
    """An id that stays when other cells change: from the exercise's path, or from the text."""
    words = cell.source.split(maxsplit=2)
    if words and words[0] in ("%%exercise", "%%solution"):
        name = "exercise-" + words[1].replace(".", "-")
    else:
        name = hashlib.sha256(cell.source.encode()).hexdigest()[:12]
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}-{taken[name]}"


def _bare(cell: NotebookNode) -> NotebookNode:
    cell = copy.deepcopy(cell)
    if cell.cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    return cell


def _clean(cell: NotebookNode, where: str) -> None:
    """Take out of a cell's outputs what differs from run to run; refuse what names a machine."""
    if cell.cell_type != "code":
        return
    cell.metadata.pop("execution", None)
    kept = []
    for output in _joined(cell.outputs):
        data = output.get("data", {})
        if WIDGETS in data:
            continue
        for form in ("text/html", "text/latex"):
            if "image/png" in data:
                data.pop(form, None)
        text = json.dumps({k: v for k, v in output.items() if k != "data"}) + json.dumps(
            {k: v for k, v in data.items() if not k.startswith("image/")}
        )
        found = PRIVATE.search(text)
        if found:
            raise BuildError(f"{where} shows {found[0]!r}: print nothing of the machine")
        kept.append(output)
    cell.outputs = kept


def _joined(found: list[NotebookNode]) -> list[NotebookNode]:
    """Pieces of one stream that arrived one after the other, as one output."""
    joined: list[NotebookNode] = []
    for output in found:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def _file(kind: str, name: str) -> Path:
    return registry.ROOT / kind / f"{name}.ipynb"
