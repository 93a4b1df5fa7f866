"""The museum of bugs: every bug can be caught, each needs what its story says, ours has none."""

import pytest
import torch

from course import museum

SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
# What a training must look like for the bug to show, as (stage, options).
SHOWS = {
    "averages_weights": (0, {"optimizer": ADAMW}),
    "sum_for_mean": (1, {"optimizer": SGD}),
    "rank_0_is_false": (1, {}),
    "last_micro_batch_lost": (2, {"micro_batches": 2}),
    "padding_in_the_norm": (1, {"clip": 0.05}),
    "clips_by_its_own_norm": (1, {"clip": 0.05}),
    "tied_updated_twice": (1, {"tied": True}),
    "unit_waits_for_the_frozen": (3, {"frozen": True}),
    "keeps_what_it_gathered": (3, {}),
    "unused_is_zero": (1, {"unused": True}),
    "starts_apart": (1, {}),
}
# And a training in which it does not, although one would think so.
HIDES = {
    "averages_weights": (0, {"optimizer": SGD}),
    "last_micro_batch_lost": (2, {}),
    "clips_by_its_own_norm": (1, {}),
    "unit_waits_for_the_frozen": (3, {}),
}


def test_show_lists_the_bugs_or_prints_one(capsys):
    museum.show()
    listed = capsys.readouterr().out
    assert all(bug.__name__ in listed for bug in museum.BUGS)
    assert f"{len(museum.BUGS)} bugs." in listed
    museum.show("sum_for_mean")
    assert 'right(\n        mesh, ticket, flat, out, "sum", *rest' in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"no bug 'sum'.*sum_for_mean"):
        museum.show("sum")


def wrong(run):
    same = all(
        torch.allclose(mine[name], value, atol=1e-5)
        for mine in run.weights
        for name, value in run.expected.items()
    )
    norms = all(
        abs(a - b) < 1e-4
        for mine in run.norms
        for a, b in zip(mine, run.expected_norms, strict=True)
    )
    return not same or not norms or any(run.resident)


def bug(name):
    return next(b for b in museum.BUGS if b.__name__ == name)


@pytest.mark.parametrize("name", [b.__name__ for b in museum.BUGS])
def test_bug_shows(name):
    """The right code passes the very training in which the bug is caught."""
    stage, options = SHOWS[name]
    assert wrong(museum._training(bug(name))(stage, **options))
    assert not wrong(museum._training(None)(stage, **options))


@pytest.mark.parametrize("name", HIDES)
def test_bug_hides(name):
    stage, options = HIDES[name]
    assert not wrong(museum._training(bug(name))(stage, **options))


def test_judge(capsys, monkeypatch):
    """It tells what was missed, and whether the right code was rejected."""
    monkeypatch.setattr(museum, "BUGS", (museum.rank_0_is_false, museum.unused_is_zero))
    missed = museum.judge(lambda train: wrong(train(1)))
    assert missed == ["unused_is_zero"]
    said = capsys.readouterr().out
    assert "caught   rank_0_is_false" in said and "missed   unused_is_zero" in said
    assert "1 of 2 caught. It passes the right code." in said
    assert museum.judge(lambda train: True) == []
    assert "also rejects the right code" in capsys.readouterr().out
