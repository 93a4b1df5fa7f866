"""The checks of `zero.commit.commit` and `zero.commit.point_to`."""

import contextlib
from pathlib import Path

import pytest

from course.checks import compare_values, exercise, fail, require
from zero import commit, disk

# --- the disk, watched ---------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch):
    """The names of all steps that a save makes on the disk, in order."""
    seen = []
    monkeypatch.setattr(disk, "hook", seen.append)
    return seen


# --- commit --------------------------------------------------------------------------------------


@exercise("zero.commit.commit")
def test_appears(tmp_path, steps):
    """The folder has its final name, with everything in it"""
    (tmp_path / ".step-1").mkdir()
    (tmp_path / ".step-1" / "manifest.json").write_text("{}")
    commit.commit(tmp_path / ".step-1", tmp_path / "step-1")
    there = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
    known = [
        ([".step-1", ".step-1/manifest.json"], "not-renamed", "it was not renamed"),
        (
            [".step-1", ".step-1/manifest.json", "step-1", "step-1/manifest.json"],
            "copied",
            "it was copied; a copy can die half-way",
        ),
    ]
    compare_values(["step-1", "step-1/manifest.json"], there, "what is there", known)
    if any(s.startswith("create") for s in steps) or not any(s.startswith("rename") for s in steps):
        fail("It must appear by one rename (disk.rename).", "copied")


@exercise("zero.commit.commit")
def test_order_of_steps(tmp_path, steps):
    """The names inside are on the disk before the rename, the new name after it"""
    (tmp_path / ".step-1").mkdir()
    commit.commit(tmp_path / ".step-1", tmp_path / "step-1")
    above = f"sync {tmp_path.name}"
    expected = ["sync .step-1", "rename step-1", above]
    known = [
        (["rename step-1"], "nothing-synced", "nothing was synced"),
        (["rename step-1", above], "not-before", "the names in the folder may be lost"),
        (["sync .step-1", "rename step-1"], "not-after", "the new name itself may be lost"),
        (["rename step-1", "sync step-1"], "not-before", "synced too late"),
        (["rename step-1", "sync step-1", above], "not-before", "synced after the rename"),
        (["sync .step-1", "rename step-1", "sync step-1"], "not-after",
         "the new name stands in the folder above, and may be lost"),
        (["sync .step-1", above, "rename step-1"], "not-after", "synced before there was a name"),
    ]  # fmt: skip
    at = steps.index("rename step-1")  # one sync too many does no harm
    if (
        steps.count("rename step-1") > 1
        or "sync .step-1" not in steps[:at]
        or above not in steps[at:]
    ):
        compare_values(expected, steps, "the steps", known)


@exercise("zero.commit.commit")
def test_from_another_folder(tmp_path, steps):
    """The folder above the new name counts, also if the old one stands elsewhere"""
    for folder in ("new", "old/.step-1"):
        (tmp_path / folder).mkdir(parents=True)
    commit.commit(tmp_path / "old" / ".step-1", tmp_path / "new" / "step-1")
    expected = ["sync .step-1", "rename step-1", "sync new"]
    known = [([*expected[:2], "sync old"], "another-folder", "the new name stands in new")]
    if "sync new" not in steps[steps.index("rename step-1") :]:
        compare_values(expected, steps, "the steps from old/.step-1 to new/step-1", known)


@exercise("zero.commit.commit")
def test_error_passed_on(tmp_path, monkeypatch):
    """An error of the disk reaches the caller"""
    (tmp_path / ".step-1").mkdir()

    def full(step):
        if step == "rename step-1":
            raise OSError("no space left on the disk")

    monkeypatch.setattr(disk, "hook", full)
    with contextlib.suppress(OSError):
        commit.commit(tmp_path / ".step-1", tmp_path / "step-1")
        text = "disk.rename raised OSError, and commit returned as if there were a checkpoint now."
        fail(text, "error-swallowed")


@exercise("zero.commit.commit")
def test_nothing_replaced(tmp_path):
    """A folder that has the final name already stays, and OSError is raised"""
    for name, line in ((".step-1", "new"), ("step-1", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(line)
    raised = False
    try:
        commit.commit(tmp_path / ".step-1", tmp_path / "step-1")
    except OSError:
        raised = True
    there = {
        str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()
    }
    expected = {".step-1/manifest.json": "new", "step-1/manifest.json": "old"}
    text = "There was a checkpoint of this name already, and it is gone or has another name now. "
    text += f"Between two steps of such an exchange there is none at all.\nThere is: {there}"
    require(there == expected, text, "replaced")
    text = "There was a checkpoint of this name already. commit returned without an error, so the "
    require(raised, f"{text}caller takes the new one for saved.", "error-swallowed")


@exercise("zero.commit.commit")
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed(tmp_path, monkeypatch, number):
    """Dead at any step: a complete checkpoint, or none"""
    (tmp_path / ".step-1").mkdir()
    for name in ("rank-00000.safetensors", "manifest.json"):
        (tmp_path / ".step-1" / name).write_text("x")
    left = [number]

    def die(step):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt(step)

    monkeypatch.setattr(disk, "hook", die)
    with contextlib.suppress(KeyboardInterrupt):
        commit.commit(tmp_path / ".step-1", tmp_path / "step-1")
    if (tmp_path / "step-1").exists():
        files = sorted(p.name for p in (tmp_path / "step-1").iterdir())
        compare_values(["manifest.json", "rank-00000.safetensors"], files, "the checkpoint's files")


# --- point_to ------------------------------------------------------------------------------------


@exercise("zero.commit.point_to")
def test_line(tmp_path):
    """latest holds the name, and a line end"""
    commit.point_to(tmp_path, "step-00000100")
    path = tmp_path / "latest"
    require(path.is_file(), f"There is no file {path.name}.", "no-file")
    known = [
        ("step-00000100", "no-line-end", "the line has no end: one byte may be missing, or not"),
        (f"{tmp_path}/step-00000100\n", "whole-path", "a path; the folder may be moved"),
    ]
    compare_values("step-00000100\n", path.read_text(), "latest", known)


@pytest.fixture
def renames(monkeypatch):
    """The pairs (old, new) of all calls of disk.rename, in order."""
    seen, rename = [], disk.rename

    def look(old, new):
        seen.append((Path(old), Path(new)))
        rename(old, new)

    monkeypatch.setattr(disk, "rename", look)
    return seen


@exercise("zero.commit.point_to")
def test_replaced_at_once(tmp_path, steps, renames):
    """A second call replaces the line; latest is never opened for writing"""
    commit.point_to(tmp_path, "step-00000100")
    steps.clear()
    renames.clear()
    commit.point_to(tmp_path, "step-00000200")
    require((tmp_path / "latest").read_text() == "step-00000200\n", "The old line stays.", "stays")
    if not renames or renames[-1][1] != tmp_path / "latest":
        fail(
            "latest is not made by disk.rename; if it is written itself, a reader may see a part "
            "of the line.",
            "in-place",
        )
    _temporary_is_good(renames[-1][0], tmp_path)
    _line_is_synced(renames[-1][0].name, tmp_path.name, steps)


def _temporary_is_good(temporary: Path, root: Path) -> None:
    """It may have any name in `root`, but not that of a checkpoint."""
    text = f"The new file was written in {temporary.parent}, latest stands in {root}. "
    text += "A rename works only within one file system: write it in the same folder."
    require(temporary.parent == root, text, "elsewhere")
    text = f"The new file is called {temporary.name}, as a checkpoint is."
    require(commit.step_of(temporary.name) is None, text, "name-of-a-checkpoint")


def _line_is_synced(temporary: str, root: str, steps: list[str]) -> None:
    """Created, written and synced before the rename; the folder synced after it."""
    shown = f"The steps: {', '.join(steps)}."
    before, after = steps[: steps.index("rename latest")], steps[steps.index("rename latest") + 1 :]
    if f"sync {temporary}" not in before:
        text = f"The line in {temporary} is not on the disk before the rename: after a power "
        fail(f"{text}failure latest may be empty. disk.write waits for the disk.\n{shown}",
             "not-synced")  # fmt: skip
    if f"sync {root}" not in after:
        text = "Nothing is synced after the rename: the new name itself may be lost. It stands in "
        if f"sync {root}" in before:
            text = (
                "The folder was synced before the rename; the new name may be lost. It stands in "
            )
        fail(f"{text}the folder root, so sync that: disk.sync(root).\n{shown}", "not-synced")


@exercise("zero.commit.point_to")
def test_left_over(tmp_path, renames):
    """A file that a dead save has left behind does not matter"""
    commit.point_to(tmp_path, "step-00000100")
    temporary = renames[-1][0]
    for path in {tmp_path / ".latest", temporary}:
        path.write_text("step-000")
        try:
            commit.point_to(tmp_path, "step-00000200")
        except FileExistsError:
            fail(f"FileExistsError: {path.name} was left by a save that died.", "left-over")
        line = (tmp_path / "latest").read_text()
        require(line == "step-00000200\n", f"latest then holds {line!r}.", "left-over")


@exercise("zero.commit.point_to")
def test_others_stay(tmp_path):
    """Whatever else is in the folder stays: checkpoints, and folders in which one is written"""
    names = ["step-00000100", ".step-00000200", ".step-00000300", ".removed.step-00000050"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("x")
    (tmp_path / ".notes").write_text("x")
    error = ""
    try:
        commit.point_to(tmp_path, "step-00000200")
    except OSError as caught:
        error = f"{type(caught).__name__}: {caught}"
    lost = [n for n in names if not (tmp_path / n / "manifest.json").exists()]
    lost += [] if (tmp_path / ".notes").exists() else [".notes"]
    require(not lost, f"There was {', '.join(lost)} in root; it is gone.", "others-removed")
    text = f"There is a folder .step-00000200 in root, in which a checkpoint is written.\n{error}"
    require(not error, text, "name-of-a-save")


@exercise("zero.commit.point_to")
def test_killed_pointer(tmp_path, monkeypatch):
    """Dead at any step: the old line or the new one"""
    for number in range(1, 7):
        commit.point_to(tmp_path, "step-00000100")
        left = [number]

        def die(step, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt(step)

        monkeypatch.setattr(disk, "hook", die)
        with contextlib.suppress(KeyboardInterrupt):
            commit.point_to(tmp_path, "step-00000200")
        monkeypatch.setattr(disk, "hook", None)
        path = tmp_path / "latest"
        line = path.read_text() if path.exists() else "nothing: the file is gone"
        if line not in ("step-00000100\n", "step-00000200\n"):
            fail(f"dead at step {number}: latest holds {line!r}", "half-written")
