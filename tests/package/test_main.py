"""The command line: what it prints, writes and refuses."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from main import COMMANDS, main
from zero.front import STAGES

CODE = Path(__file__).parents[2] / "code"
SMALL = ["--model", "mlp", "--ranks", "2", "--steps", "3"]


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

    return call


def python(*argv, **environment):
    """The command line in a process of its own: (exit code, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, *map(str, argv)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=55,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "command", [["compare", *SMALL], ["train", "--ranks", "2", "--steps", "3"]]
)
def test_a_reader_who_has_seen_enough(command):
    """As in `main.py train | head`: no traceback."""
    reading, writing = os.pipe()
    argv = [sys.executable, str(CODE / "main.py"), *command]
    process = subprocess.Popen(argv, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    os.close(reading)
    assert process.communicate(timeout=55)[1] == ""
    assert process.returncode == 1


# --- compare -------------------------------------------------------------------------------------


def test_compare_is_the_default_and_writes_json_and_a_picture(run, tmp_path):
    code, out, err = run(*SMALL, "--json", "a/figures.json", "--figure", "b/picture.png")
    assert (code, err) == (0, "")
    assert (tmp_path / "b/picture.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "a/figures.json").read_text())
    assert found.keys() == {"world_size", "backend", "torch", "model", "runs"}
    assert (found["world_size"], found["backend"]) == (2, "gloo")
    parameters = (64 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 64
    assert found["model"] == {"parameters": parameters}
    assert [r["stage"] for r in found["runs"]] == list(STAGES)
    kinds = {"parameters", "gradients", "optimizer"}
    for r in found["runs"]:
        assert r.keys() == {"name", "stage", "precision", "losses", "memory", "wire", "seconds"}
        assert r["name"] == (f"ZeRO-{r['stage']}" if r["stage"] else "DDP")
        assert len(r["losses"]) == 3
        assert r["losses"] == found["runs"][0]["losses"]
        assert r["memory"].keys() == {"predicted", "persistent", "peak"}
        assert r["memory"]["predicted"] == r["memory"]["persistent"]
        assert r["memory"]["predicted"].keys() == kinds
        assert r["memory"]["peak"] > sum(r["memory"]["persistent"].values())
        assert r["wire"]["predicted"] == r["wire"]["sent"] > 0
        parts = {"forward", "backward", "communication", "optimizer", "step"}
        assert r["seconds"].keys() == parts
        assert all(seconds > 0 for seconds in r["seconds"].values())
    plain, one = (r["memory"]["persistent"]["optimizer"] for r in found["runs"][:2])
    assert (plain, one) == (8 * parameters, 4 * parameters)
    assert "bitwise equal in all runs and ranks" in out


def test_compare_in_a_pipe_is_plain_and_80_columns_wide(run):
    code, out, err = run("compare", *SMALL, "--no-figure", "--precision", "bf16", "--stages", "1,0")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "measured as predicted" in out
    assert re.search(r"7B +8 +112.0 +38.5 -65.6 %", out)
    assert re.search(r"7B +64 +112.0 +29.3 -73.8 %", out)
    assert re.search(r"70B +64 +1120.0 .* 17.5 -98.4 %", out)


def test_compare_trains_the_gpt_on_a_text_of_ones_own(run, tmp_path):
    (tmp_path / "my.txt").write_text("A line of verse, and then another one. " * 100)
    argv = ["--ranks", 2, "--steps", 2, "--stages", 1, "--text", "my.txt", "--optimizer", "SGD"]
    code, out, err = run("compare", *argv, "--no-figure")
    assert (code, err) == (0, "")
    assert out.startswith("GPT on text, ")


# --- train ---------------------------------------------------------------------------------------

LEARN = ["--steps", "16", "--eval-every", "8", "--batch", "2", "--sample", "20", "--lr", "0.003"]


def validation_losses(out):
    return [float(loss) for loss in re.findall(r"validation loss (\d+\.\d+)", out)]


def test_train_learns_on_its_own_ranks(run):
    code, out, err = run("train", "--ranks", 2, "--stage", 1, *LEARN, "--clip", 1)
    assert (code, err) == (0, "")
    losses = validation_losses(out)
    assert len(losses) == 3
    assert losses[-1] < losses[0] - 0.5
    assert "2 ranks" in out
    assert len(re.findall(r"loss \d\.\d{4}   [\d,]+ tokens/s", out)) == 2


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_train_in_16_bits(run, precision):
    code, out, err = run("train", "--ranks", 2, "--precision", precision, *LEARN)
    assert code == 0, err
    losses = validation_losses(out)
    assert losses[-1] < losses[0] - 0.5


def test_train_works_alone_and_under_torchrun():
    argv = [CODE / "main.py", "train", *LEARN]
    code, alone, err = python(*argv, "--ranks", 1, "--batch", 4)
    assert code == 0, err
    code, two, err = python("-m", "torch.distributed.run", "--nproc-per-node", 2, *argv)
    assert code == 0, err
    assert "1 rank," in alone
    assert two.count("validation loss") == 3
    # One rank with twice the batch trains on the same text as two.
    assert validation_losses(two)[-1] == pytest.approx(validation_losses(alone)[-1], abs=2e-3)


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1") * 2000)
    (tmp_path / "short.txt").write_text("abc " * 260)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ("compare --ranks 0", "--ranks: 0 is too small; it must be at least 1"),
        ("compare --ranks 1000", "1000 ranks on .* cores .* at most"),
        ("compare --ranks two", "--ranks: 'two' is not a whole number"),
        ("compare --steps -1", "-1 is too small"),
        ("compare --stages 7", "unknown stage 7; choose from 0, 1"),
        ("compare --stages 0 0", "each only once"),
        ("compare --stages one", "'one' is not a stage"),
        ("compare --precision fp8", "invalid choice: 'fp8'"),
        ("compare --optimizer LBFGS", "LBFGS cannot be sharded: .* not known to be elementwise"),
        ("compare --optimizer Adamm", "unknown optimizer 'Adamm'; choose one of AdamW"),
        ("compare --optimizer Rprop", "unknown optimizer 'Rprop'; choose one of AdamW"),
        ("compare --text none.txt", "none.txt does not exist"),
        ("compare --text empty.txt", "empty.txt is empty"),
        ("compare --text latin.txt", "latin.txt is not UTF-8"),
        ("compare --text short.txt --batch 99", "too few for one step"),
        ("compare --json .", r"\. is a folder; name a file in it"),
        ("compare --json empty.txt/x.json", "folder empty.txt: "),
        ("train --stage 9", "unknown stage 9; choose from 0, 1"),
        ("train --text empty.txt", "empty.txt is empty"),
        ("train --lr 0", "--lr: 0 must be above 0"),
        ("play", "invalid choice: 'play'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(run, texts, argv, reason):
    code, out, err = run(*argv.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("main.py")
    assert re.search(reason, err)


def test_a_failure_on_the_ranks_is_told_without_a_traceback(run, monkeypatch):
    from demos import compare

    def fails(rank, world_size, *_):
        raise RuntimeError("no luck on this rank")

    monkeypatch.setattr(compare, "measure", fails)
    code, _, err = run("compare", *SMALL)
    assert code == 1
    assert "no luck on this rank" in err
    assert "Traceback" not in err


# --- help, and the learner's pieces --------------------------------------------------------------


def test_help_is_complete_and_needs_no_torch():
    look = (
        "import sys, main; sys.argv[1:] = ['--help']\n"
        "try: main.main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    code, out, err = python("-c", look, PYTHONPATH=CODE)
    assert code == 0, err
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_of_a_command_is_explained(run, name):
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "--mine" in out
    options = re.findall(r"^  (-.*?)(?:  |$)(.*)", out, re.M)
    assert len(options) > 3
    assert all(text.strip() for _, text in re.findall(r"^  (-[^\n]*?)\s\s+(\S.*)$", out, re.M))


def test_mine_says_whose_code_runs(tmp_path):
    argv = ["train", "--mine", "--steps", 1, "--batch", 1, "--ranks", 1, "--sample", 0]
    code, out, err = python(CODE / "main.py", *argv, COURSE_MINE=tmp_path)
    assert code == 0, err
    assert out.startswith("Your own code runs for: nothing yet.")
