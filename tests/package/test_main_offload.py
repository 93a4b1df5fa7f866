"""`compare --offload`: what it prints, writes and refuses. That memory falls: test_offload.py."""

import json

import pytest
from test_main_activations import call

SMALL = ["--ranks", "2", "--steps", "2", "--batch", "1"]


def test_in_memory_and_on_disk(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    figures = tmp_path / "a.json"
    code, out, err = call(capsys, *SMALL, "--offload", "disk", "--stages", "0,2", "--json", figures)
    assert (code, err) == (0, "")
    assert "Losses and final weights are bitwise equal in all runs and ranks." in out
    assert all(len(line) <= 80 for line in out.splitlines() if str(tmp_path) not in line)
    runs = {run["name"]: run["ranks"] for run in json.loads(figures.read_text())["runs"]}
    assert list(runs) == ["DDP", "ZeRO-2", "ZeRO-2, states on disk"]
    for ranks in runs.values():
        assert len(ranks) == 2
        for rank in ranks:
            assert rank["peak"] >= rank["now"] > sum(rank["states"].values()) > 0
            assert len(rank["losses"]) == 2
    whole, half = (runs[name][0] for name in ("DDP", "ZeRO-2"))
    assert sum(whole["states"].values()) == 16 * whole["parameters"]
    assert 10 * whole["parameters"] <= sum(half["states"].values())  # 4 whole, 12 / 2 and padding
    assert "0.013" in out and "0.005" in out  # GB: 16 Ψ, and (4 + 2) Ψ when the moments are gone


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--offload", "tape"], "invalid choice: 'tape'"),
        (["--offload", "disk", "--stages", "0"], "add a stage from 1 to 3"),
        (["--offload", "disk", "--stages", "7"], "unknown stage 7"),
        (["--offload", "disk", "--activations", "none"], "two comparisons"),
        (["--offload", "cpu"], "without a GPU all states are in host memory"),
    ],
)
def test_wrong_arguments(capsys, argv, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = call(capsys, "compare", *argv)
    assert (code, out) == (2, "")
    assert message in err and len(err.splitlines()) == 1
