"""The clock splits a step's seconds into forward, backward, communication, optimizer."""

import pytest
import torch
from torch import nn

import zero
from helpers import m0, rows
from zero import comm
from zero.clock import PARTS, Clock


def step(model: nn.Module, opt: torch.optim.Optimizer) -> None:
    x, y = rows(0)
    nn.functional.mse_loss(model(x), y).backward()
    opt.step()


def test_clock_counts_each_second_once():
    model = m0()
    opt = torch.optim.AdamW(model.parameters())

    def communicate(_):
        comm.all_reduce(torch.zeros(4), name="hook")

    model[0].weight.register_post_accumulate_grad_hook(communicate)
    with Clock(model, opt) as clock:
        for _ in range(3):
            step(model, opt)
            comm.all_gather(torch.zeros(4), async_op=True, name="late").wait()
    split = clock.per_step()
    assert clock.steps == 3
    assert set(split) == {"forward", "backward", "communication", "optimizer", "other", "step"}
    assert all(seconds > 0 for seconds in split.values())
    whole = split.pop("step")
    assert sum(split.values()) == pytest.approx(whole)
    names = [e.name for e in clock.events[:5]]
    assert names == ["forward", "all_reduce hook", "backward", "optimizer", "all_gather late"]
    parts = [e.part for e in clock.events[:3]]
    assert parts == ["forward", "communication", "backward"]
    backward, hook = clock.events[2], clock.events[1]
    assert backward.start < hook.start < hook.end < backward.end
    inside = sum(e.end - e.start for e in clock.events if e.part != "communication")
    assert inside < clock.per_step()["step"] * 3


def test_clock_leaves_nothing_behind():
    model = m0()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    before = (torch.autograd.backward, comm.all_reduce, comm.Work.wait)
    with pytest.raises(RuntimeError), Clock(model, opt) as clock:
        model(torch.zeros(1, 3))  # a shape that does not fit
    assert (torch.autograd.backward, comm.all_reduce, comm.Work.wait) == before
    assert "step" not in vars(opt)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert clock.steps == 0
    assert clock.seconds["forward"] > 0


def test_scheduler_keeps_working_under_the_clock():
    model = m0()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 0.5**i)
    with Clock(model, opt):
        step(model, opt)
        scheduler.step()
    assert opt.param_groups[0]["lr"] == 0.05
    step(model, opt)
    scheduler.step()
    assert opt.param_groups[0]["lr"] == 0.025


def timed_ranks(rank: int, n: int, stage: int) -> tuple[dict, list]:
    model = m0()
    opt = zero.shard(model, stage, lr=1e-2)
    with Clock(model, opt) as clock:
        for _ in range(2):
            step(model, opt)
            opt.zero_grad()
    return clock.per_step(), clock.events


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_clock_on_ranks(stage):
    collectives = {"reduce_scatter", "all_gather"} if stage else {"all_reduce"}
    for rank, (split, events) in enumerate(zero.launch(timed_ranks, 2, stage, quiet=True)):
        assert set(split) == {*PARTS, "step"}
        assert all(seconds > 0 for seconds in split.values())
        assert {e.rank for e in events} == {rank}
        assert [e.part for e in events if e.part != "communication"] == [
            "forward",
            "backward",
            "optimizer",
        ] * 2
        sent = {e.name.split()[0] for e in events if e.part == "communication"}
        assert sent - {"all_gather_small"} == collectives
        assert all(e.start <= e.end for e in events)
