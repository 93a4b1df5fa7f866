"""`train --save --resume` and `checkpoint inspect|verify|export`."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from main import main

TEXT = "A line of verse, and then another one, and so on to the end of the page.\n" * 150
TRAIN = [
    "train",
    "--text",
    "text.txt",
    "--eval-every",
    3,
    "--batch",
    2,
    "--sample",
    0,
    "--lr",
    0.01,
    "--steps",
    6,
]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Call the command line in an empty folder: run(*argv) -> (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*argv):
        try:
            code = main([str(a) for a in argv])
        except SystemExit as error:
            code = error.code
        return code, *capsys.readouterr()

    (tmp_path / "text.txt").write_text(TEXT)
    return call


@pytest.fixture
def trained(run):
    """A run of 6 steps that saves steps 3 and 6 in `a`, and in `b` what it had after step 3."""
    code, out, err = run(*TRAIN, "--ranks", 2, "--stage", 2, "--save", "a", "--save-every", 3)
    assert (code, err) == (0, "")
    assert "step     3   saved " in out
    shutil.copytree("a/step-00000003", "b/step-00000003")
    with open("b/latest", "w") as file:
        file.write("step-00000003\n")
    return out


def test_resume_goes_on_where_it_stopped(run, trained):
    """Weights after 6 steps are bitwise the same with and without an interruption, whatever the
    stage; so the data went on where it had stopped, and so did the schedule."""
    code, out, err = run(*TRAIN, "--ranks", 2, "--stage", 3, "--save", "b", "--resume")
    assert (code, err) == (0, "")
    assert f"step     3   resumed from {os.path.abspath('b/step-00000003')}" in out
    assert trained.splitlines()[-1] == out.splitlines()[-1]
    for folder in "ab":
        code, out, err = run("checkpoint", "export", folder, f"{folder}.safetensors")
        assert (code, err) == (0, "")
    first, second = load_file("a.safetensors"), load_file("b.safetensors")
    assert first.keys() == second.keys()
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())


def test_resume_on_other_ranks_reads_what_follows(run, trained):
    """2 ranks have read 12 sequences in 3 steps. 3 ranks, with a batch of 3 each, go on behind
    them: 9 a step, so behind the second step; after three more they have read 45."""
    argv = [*TRAIN, "--ranks", 3, "--stage", 1, "--batch", 3, "--save", "c", "--async-save"]
    code, out, err = run(*argv, "--save-every", 2, "--resume", "b")
    assert code == 0
    assert "saved by 2 ranks, loaded on 3" in err
    assert "being saved in the background" in out
    assert f"step     6   saved {os.path.abspath('c/step-00000006')}" in out
    code, out, _ = run("checkpoint", "inspect", "c")
    assert "'sequences': 45" in out
    assert sorted(os.listdir("b")) == ["latest", "step-00000003"]


def test_inspect_and_verify(run, trained):
    code, out, err = run("checkpoint", "inspect", "a", "--slices")
    assert (code, err) == (0, "")
    for fact in ("step-00000006", "2 ranks, ZeRO-2", "AdamW", "fp32", "scheduler   yes"):
        assert fact in out
    assert "wte.weight" in out
    code, out, err = run("checkpoint", "verify", "a")
    assert (code, err) == (0, "")
    assert [line.split(":")[1] for line in out.splitlines()] == [" complete, 2 files, 9.71 MB"] * 2
    with open("a/step-00000003/rank-00001.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    code, out, err = run("checkpoint", "verify", "a")
    assert code == 1
    assert "step-00000006: complete" in out
    assert "step-00000003: broken: " in out
    assert "rank-00001.safetensors: sha256 is" in out


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        ("train --save-every 3", 2, "--save-every needs --save DIR"),
        ("train --async-save", 2, "--async-save needs --save DIR"),
        ("train --resume", 2, "--resume needs a folder, or --save DIR"),
        ("train --resume nowhere", 2, "nowhere holds no checkpoint"),
        ("train --save new --resume", 2, "new holds no checkpoint"),
        ("train --save file/below", 2, "--save: file/below: Not a directory"),
        ("checkpoint", 2, "arguments are required"),
        ("checkpoint look here", 2, "invalid choice: 'look'"),
        ("checkpoint inspect nowhere", 1, "nowhere holds no checkpoint"),
        ("checkpoint verify nowhere", 1, "nowhere holds no checkpoint"),
        ("checkpoint export nowhere", 1, "checkpoint export DIR FILE"),
        ("checkpoint export nowhere file", 1, "nowhere holds no checkpoint"),
        ("checkpoint export nowhere file --precision int8", 2, "invalid choice: 'int8'"),
    ],
)
def test_refused_in_one_line(run, argv, code, reason, tmp_path):
    (tmp_path / "file").write_text("")
    found, out, err = run(*argv.split())
    assert (found, out) == (code, "")
    assert reason in err
    assert len(err.splitlines()) == 1


def test_another_alphabet_is_refused(run, trained, tmp_path):
    """As many characters, but others: the weights would mean something else."""
    (tmp_path / "text.txt").write_text(TEXT.replace("a", "ä"))
    code, out, err = run(*TRAIN, "--ranks", 1, "--resume", "a")
    assert (code, out) == (2, "")
    assert "was trained on a text with other characters" in err
