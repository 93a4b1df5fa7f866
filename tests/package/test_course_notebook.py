"""Exercise cells in a real kernel: one notebook, cell after cell as a learner would run them."""

import nbformat
import pytest
from nbclient import NotebookClient

from course import limits, registry, source

pytestmark = pytest.mark.timeout(300)  # the first test runs the whole notebook
PATH = "zero.flat.shard_bounds"
STUB = f"%%exercise {PATH}\n{source.stub(PATH)}"
RIGHT = f"%%exercise {PATH}\n{source.reference(PATH)}"
WRONG = RIGHT.replace("-(-numel // world_size)", "numel // world_size")
ENDLESS = RIGHT.replace("    shard =", "    while True:\n        pass\n    shard =")
BROKEN = RIGHT.replace("rank * shard,", "rank * shard,,")
RANKS = """
from zero import launch
from zero.flat import FlatLayout

def layout(rank, world_size):
    return FlatLayout([("a", (10,))], world_size).shard_numel

print("shard", launch(layout, 4, quiet=True)[3])
"""
CELLS = {
    "load": "%load_ext course",
    "GPUs": """
import os
from zero import launch

def seen(rank, world_size):
    return os.environ["CUDA_VISIBLE_DEVICES"]

print([seen(0, 1), *launch(seen, 1, quiet=True)])
""",
    "stub": STUB,
    "ours runs": "print(shard_bounds(10, 4, 3))",
    "unknown": "%%exercise zero.flat.shard_bound\nx = 1",
    "wrong": WRONG,
    "wrong runs": "print(shard_bounds(10, 4, 3))",
    "wrong runs in ranks": RANKS,
    "broken": BROKEN,
    "ours runs again": "print(shard_bounds(10, 4, 3))",
    "endless": ENDLESS,
    "right": RIGHT,
    "right runs in ranks": RANKS,
    "stub again": STUB,
    "error": RIGHT.replace("-(-numel", "0 / 0 + -(-numel"),
    "error runs": "shard_bounds(10, 4, 3)",
    "hint": f"import course\ncourse.hint('{PATH}', 2)",
    "reset": f"course.reset('{PATH}')\nprint(shard_bounds(10, 4, 3))",
    "progress": "course.progress()",
    "solution": RIGHT.replace("%%exercise", "%%solution"),
    "changed solution": WRONG.replace("%%exercise", "%%solution"),
}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return tmp_path_factory.mktemp("notebook") / "mine"


@pytest.fixture(scope="module")
def shown(mine):
    """What each cell printed, by the names above."""
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_MINE", str(mine))
        patch.setenv(limits.VARIABLE, "2")
        patch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
        patch.setenv("PYTHONPATH", str(registry.ROOT / "code"))
        NotebookClient(nb, timeout=120, kernel_name="python3", allow_errors=True).execute()
    return dict(zip(CELLS, map(text_of, nb.cells)))


def text_of(cell):
    parts = [o.get("text", "") + "\n".join(o.get("traceback", [])) for o in cell.outputs]
    return "".join(parts)


def test_an_untouched_stub_goes_on_with_our_code(shown):
    assert shown["stub"] == f"{PATH}: not written yet. Until it is, our code is used.\n"
    assert shown["ours runs"] == "(9, 12)\n"


def test_lessons_see_no_gpu(shown):
    """Their tensors are on the CPU: ranks with a GPU each would choose NCCL, which takes none."""
    assert shown["GPUs"] == "['', '']\n"


def test_an_unknown_exercise_is_named(shown):
    assert "Did you mean zero.flat.shard_bounds?" in shown["unknown"]


def test_a_wrong_piece_is_reported_and_in_use(shown):
    assert "the length is rounded down" in shown["wrong"]
    assert f"Graded: mine/{PATH}.py" in shown["wrong"]
    assert shown["wrong runs"] == "(6, 8)\n"
    assert shown["wrong runs in ranks"] == "shard 2\n"


def test_what_cannot_be_used_is_reported_and_ours_is_used(shown):
    assert "Python cannot read line" in shown["broken"]
    assert shown["ours runs again"] == "(9, 12)\n"
    assert (
        "is there a loop without an end?" in shown["endless"] and "while True" in shown["endless"]
    )


def test_a_right_piece_passes_and_is_in_use(shown, mine):
    assert f"{PATH}: passed" in shown["right"]
    assert shown["right runs in ranks"] == "shard 3\n"
    assert len(list((mine / ".history" / PATH).glob("*.py"))) >= 4


def test_an_old_stub_does_not_overwrite_what_is_written(shown):
    assert "still holds the stub" in shown["stub again"]
    assert f"{PATH}: passed" in shown["stub again"]


def test_a_traceback_shows_the_learners_line(shown):
    line = next(i for i, t in enumerate(CELLS["error"].splitlines(), 1) if "0 / 0" in t)
    assert f"line {line} of mine/{PATH}.py" in shown["error"]
    assert "ZeroDivisionError" in shown["error runs"]
    assert f"{PATH}.py" in shown["error runs"] and f"{line}" in shown["error runs"]


def test_hint_reset_and_progress_work_in_the_notebook(shown, mine):
    assert "hint 2 of 3 (the idea)" in shown["hint"]
    assert "is the stub again" in shown["reset"] and "(9, 12)" in shown["reset"]
    assert "not written yet" in shown["progress"]


def test_a_solution_is_graded_and_not_saved(shown, mine):
    assert "Graded: our solution" in shown["solution"]
    assert "rounded down" in shown["changed solution"]
    assert source.is_stub((mine / f"{PATH}.py").read_text(), "shard_bounds")
