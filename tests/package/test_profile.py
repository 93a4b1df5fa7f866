"""`profile`: the time line of a step, and what is read off it."""

import re

import numpy as np
import pytest

from demos import profile, profile_report
from demos.profile import Timeline
from demos.settings import Training
from main import main
from zero.launch import launch
from zero.meter import KINDS, Event


def event(part, start, end, name=""):
    return Event(part, name or part, 0, start, end)


STEP = [
    event("forward", 0.0, 4.0),
    event("communication", 1.0, 2.0, "all_gather parameters of a"),
    event("backward", 4.0, 8.0),
    event("optimizer", 8.0, 10.0),
    event("communication", 9.0, 10.0, "all_gather_small used"),
]


def test_memory_of_the_slow_step_is_laid_on_the_time_of_the_other():
    slow = [Event(e.part, e.name, 0, 100 + 3 * e.start, 100 + 3 * e.end) for e in STEP]
    times = np.array([100.0, 103.0, 104.5, 112.0, 130.0])
    assert profile.align(times, slow, STEP) == pytest.approx([0.0, 1.0, 1.5, 4.0, 10.0])


def test_steps_with_other_moves_are_laid_on_each_other_part_by_part():
    slow = [Event(e.part, e.name, 0, 10 * e.start, 10 * e.end) for e in STEP[:1] + STEP[2:]]
    times = np.array([0.0, 20.0, 60.0, 100.0])
    assert profile.align(times, slow, STEP) == pytest.approx([0, 2, 6, 10])


def test_steps_differ_in_the_numbers_of_their_collectives():
    slow = [Event("communication", "reduce_scatter gradients of a.., step 5", 0, 0.0, 2.0)]
    fast = [Event("communication", "reduce_scatter gradients of a.., step 4", 0, 0.0, 1.0)]
    assert profile.align(np.array([1.0]), slow, fast) == pytest.approx([0.5])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_gradients_come_into_being_in_backward(stage):
    """In a real step: nothing of them before backward begins, and all by its end."""
    training = Training("mlp", "", 1, 4, "fp32", "AdamW", 1e-3, 0)
    for line in launch(profile.profile, 2, training, stage, quiet=True):
        backward = next(event for event, _ in line.events if event.part == "backward")
        gradients = line.live[KINDS.index("gradients")]
        born = gradients > gradients[0]
        first, most = line.seconds[born.argmax()], line.seconds[gradients.argmax()]
        assert backward.start <= first < most <= backward.end


def test_strips_show_what_runs_at_each_moment(monkeypatch):
    monkeypatch.setattr(profile_report, "COLUMNS", 10)
    live = np.zeros((len(KINDS), 3))
    live[0] = [10, 100, 50]
    line = Timeline([(e, None) for e in STEP], np.array([0.0, 3.0, 7.0]), live)
    assert profile_report.strip(line, 0.0, 10.0, profile_report.COMPUTING) == "ffffbbbboo"
    assert profile_report.strip(line, 0.0, 10.0, profile_report.SENDING) == " G       ."
    assert profile_report.memory_strip(line, 0.0, 10.0) == "1119999555"


@pytest.mark.parametrize("stage", [0, 3])
def test_profile_prints_every_move_and_draws_it(stage, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["--stage", stage, "--ranks", 2, "--model", "mlp"]
    assert main(["profile", *map(str, argv)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert (tmp_path / "runs/profile.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^rank 0    \|[fbo ]+\|$", out, re.M)
    assert re.search(r"^rank 1    \|[fbo ]+\|$", out, re.M)
    assert re.search(r"^memory    \|\d+\|$", out, re.M)
    for part in ("forward", "backward", "optimizer"):
        assert len(re.findall(rf"^{part} ", out, re.M)) == 1
    collectives = [name for name, _ in re.findall(r"^  (\w+) .* ([\d.]+) *$", out, re.M)]
    if stage == 0:
        assert [c for c in collectives if c != "all_gather_small"] == ["all_reduce"]
    else:  # three units, each gathered twice and reduced once
        assert collectives.count("all_gather") == 6
        assert collectives.count("reduce_scatter") == 3
