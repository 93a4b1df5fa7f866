"""`bench`: the method, and one small race against PyTorch's own data parallelism."""

import json

import pytest

from demos import bench, systems
from demos.bench import _rows
from demos.heat import Case, Lane
from main import main
from zero import models


def tiny(vocab_size, block_size=16):
    return models.GPT(vocab_size, block_size, layers=2, heads=2, width=32)


def test_a_step_takes_as_long_as_its_slowest_rank_and_ratios_are_paired_by_round():
    ddp, other = systems.systems()[:2]
    rank_0 = [
        Lane([5.0, 3.0], [1.0, 4.0], [3.0, 1.0], 10, 20, 30),
        Lane([5.0, 3.0], [2.0, 2.0], [1.0, 1.0], 1, 2, 3),
    ]
    rank_1 = [
        Lane([3.0, 1.0], [2.0, 1.0], [1.0, 1.0], 11, 21, 31),
        Lane([3.0, 1.0], [1.0, 6.0], [1.0, 4.0], 4, 5, 6),
    ]
    base, row = _rows([ddp, other], [rank_0, rank_1])
    assert base.seconds == [2.0, 4.0]
    assert base.ratios == base.work_ratios == [1.0, 1.0]
    assert row.seconds == [2.0, 6.0]
    assert row.ratios == [1.0, 1.5]
    assert row.work_ratios == [0.5, 2.5]
    assert row.ratio == 1.25
    assert row.losses == [4.0, 2.0]
    assert (row.sent, row.kept, row.peak) == (1, 2, 3)


def test_systems_race_in_as_many_heats_as_memory_asks_for(monkeypatch):
    monkeypatch.setattr(bench, "free_memory", lambda: 24 * 1000 * 2 * 10)
    assert bench._room(parameters=1000, ranks=2) == 7
    assert bench._room(parameters=10**9, ranks=2) == 3


@pytest.mark.timeout(180)  # seven systems, some of which import for seconds
def test_bench_compares_with_ddp_and_writes_what_it_found(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(bench.CASES, "3m", Case(tiny, ranks=2, batch=1))
    wanted = ["stage 3", "Redundancy", "fully_shard, keep"]
    argv = ["bench", "--models", "3m", "--rounds", "1", "--json", "b.json", "--only", *wanted]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert (tmp_path / "runs/bench.png").read_bytes().startswith(b"\x89PNG")

    (found,) = json.loads((tmp_path / "b.json").read_text())["benches"]
    assert (found["world_size"], found["rounds"]) == (2, 1)
    rows = {(s["name"], s["precision"]): s for s in found["systems"]}
    ddp = rows["DDP", "fp32"]
    assert ddp["ratio"] == {"median": 1.0, "quartiles": [1.0, 1.0]}
    assert ("DDP again", "fp32") in rows
    assert len(rows) == 2 + 1 + 2 + 2
    for (name, precision), row in rows.items():
        close = 1e-5 if precision == "fp32" else 0.05
        assert row["losses"] == pytest.approx(ddp["losses"], abs=close), name
        assert row["memory"]["peak"] > row["memory"]["persistent"] > 0
        assert row["ours"] == name.startswith("zero")
    parameters = found["model"]["parameters"]
    # DDP keeps parameters, two moments and its buckets: 16 bytes a parameter, and a few counters.
    assert 16 * parameters <= ddp["memory"]["persistent"] < 16 * parameters + 5000
    assert ddp["wire"]["sent"] == 4 * parameters
    # ZeRO-3 sends half as much again; each unit is padded for itself.
    sent = rows["zero, stage 3", "fp32"]["wire"]["sent"]
    assert sent == pytest.approx(6 * parameters, abs=100)
    kept = rows["zero, stage 3", "fp32"]["memory"]["persistent"]
    assert kept == pytest.approx(12 * parameters / 2, rel=0.02)


def test_bench_refuses_a_system_that_there_is_not(capsys):
    assert main(["bench", "--only", "horovod"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no system is called horovod; there are: DDP, " in err
