"""`compare --activations`: what it prints, writes and refuses."""

import json

import pytest

from main import main

SMALL = ["--ranks", "2", "--steps", "2", "--batch", "1"]


def call(capsys, *argv):
    try:
        code = main([str(a) for a in argv])
    except SystemExit as error:
        code = error.code
    return code, *capsys.readouterr()


def test_all_modes(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    picture, figures = tmp_path / "a.png", tmp_path / "a.json"
    code, out, err = call(capsys, *SMALL, "--tp", 2, "--figure", picture, "--json", figures)
    assert (code, err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "Losses and final weights are bitwise equal in all modes." in out
    assert "All bytes are measured as predicted, on every rank." in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line)
    for figure in ("60.4", "5.0", "0.3"):  # GPT-2 1.5B
        assert figure in out
    found = json.loads(figures.read_text())
    assert found["grid"] == {"dp": 1, "tp": 2}
    runs = {mode: ranks[0] for mode, ranks in found["runs"].items()}
    assert list(runs) == ["none", "checkpoint", "partition", "offload"]
    for name in ("measured", "peak"):
        values = [run[name] for run in runs.values()]
        assert values == sorted(values, reverse=True) and len(set(values)) == 4, name
    for run in runs.values():
        assert run["measured"] == run["predicted"]
        assert run["sent"] == run["sent_predicted"]
        assert len(run["losses"]) == 2 and len(run["seconds"]) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--activations", "some"], "invalid choice: 'some'"),
        (["--activations", "none", "none"], "each only once"),
        (["--tp", "3", "--ranks", "4"], "4 ranks cannot form rows of 3"),
        (["--tp", "3", "--ranks", "3"], "4 heads cannot be divided among --tp 3"),
        (["--tp", "2", "--stages", "1,2"], "name one stage"),
        (["--tp", "2", "--model", "mlp"], "needs a model with blocks"),
        (["--tp", "2", "--precision", "fp16"], "fp32 or bf16"),
    ],
)
def test_wrong_arguments(capsys, argv, message):
    code, out, err = call(capsys, "compare", *argv)
    assert (code, out) == (2, "")
    assert message in err and len(err.splitlines()) == 1
