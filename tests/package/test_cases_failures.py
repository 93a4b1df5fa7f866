"""Ranks that disagree, leave, or are late; missing operations; two runs that must be the same."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zero
from helpers import (
    HIDDEN,
    INPUTS,
    OUTPUTS,
    STAGES,
    Together,
    assert_equal_to_reference,
    assert_same_on_all_ranks,
    full_weights,
    loss_of,
    on_ranks,
    reference,
    rows,
    sharded,
    train_sharded,
)
from zero import comm

BY_STAGE = [(stage,) for stage in STAGES]


# --- ranks that disagree on a collective ---------------------------------------------------------


def sizes(odd):
    comm.all_reduce(torch.zeros(800 if odd else 4), name="grads")


def skipped(odd):
    """Without a name, only the line tells the two apart: the debug mode adds it."""
    first, second = torch.ones(4), torch.full((4,), 100.0)
    if not odd:
        comm.all_reduce(first)
    comm.all_reduce(second)


def dtypes(odd):
    comm.all_reduce(torch.zeros(4, dtype=torch.int32 if odd else torch.float32), name="grads")


def operations(odd):
    flat = torch.zeros(4)
    comm.reduce_scatter(flat, name="grads") if odd else comm.all_reduce(flat, name="grads")


def names(odd):
    comm.all_gather(torch.zeros(4), name="second layer" if odd else "first layer")


def sources(odd):
    comm.broadcast(torch.zeros(4), src=1 if odd else 0, name="start")


def order(odd):
    a, b = torch.zeros(4), torch.zeros(8)
    works = [comm.all_gather(t, async_op=True) for t in ((b, a) if odd else (a, b))]
    for work in works:
        work.wait()


MISMATCHES = {
    sizes: ("all_reduce(grads, 4 x float32)", "all_reduce(grads, 800 x float32)"),
    skipped: ("all_reduce(unnamed, 4 x float32) at test_cases_failures.py:",) * 2,
    dtypes: ("all_reduce(grads, 4 x float32)", "all_reduce(grads, 4 x int32)"),
    operations: ("all_reduce(grads, 4 x float32)", "reduce_scatter(grads, 4 x float32)"),
    names: ("all_gather(first layer, 4 x float32)", "all_gather(second layer, 4 x float32)"),
    sources: ("broadcast(start from 0, 4 x float32)", "broadcast(start from 1, 4 x float32)"),
    order: ("all_gather(unnamed, 4 x float32)", "all_gather(unnamed, 8 x float32)"),
}


def mismatch_case(rank, n, call):
    comm.barrier()
    try:
        call(odd=rank == n - 1)
        return "no error"
    except comm.MismatchError as error:
        return str(error)


@pytest.mark.parametrize("n", (2, 4))
@pytest.mark.parametrize("call", MISMATCHES, ids=lambda call: call.__name__)
def test_ranks_that_disagree_are_told_so_before_anything_is_mixed(call, n, monkeypatch):
    """(case G1) On every rank: the number of the collective, and what each rank wanted."""
    monkeypatch.setenv("ZERO_DEBUG", "1" if call is skipped else "0")
    usual, odd = MISMATCHES[call]
    for text in on_ranks(mismatch_case, n, call):
        lines = text.splitlines()
        assert lines[0] == "the ranks disagree on their collective number 2:"
        assert len(lines) == n + 2
        for r in range(n):
            assert lines[1 + r].startswith(f"  rank {r}: {odd if r == n - 1 else usual}")
        assert lines[1] != lines[n].replace(f"rank {n - 1}", "rank 0")


def untouched_case(rank, n):
    """All-reduce against reduce-scatter of the same tensor: nobody's data may change."""
    flat = torch.full((4,), float(rank))
    with_error = False
    try:
        comm.reduce_scatter(flat) if rank else comm.all_reduce(flat)
    except comm.MismatchError:
        with_error = True
    return with_error, flat.tolist()


def test_refused_collectives_change_no_tensor():
    assert on_ranks(untouched_case, 2) == [(True, [0.0] * 4), (True, [1.0] * 4)]


class OtherModel(nn.Module):
    """The last rank has built another model."""

    def __init__(self, hidden):
        super().__init__()
        self.a, self.b = nn.Linear(INPUTS, hidden), nn.Linear(hidden, OUTPUTS)


def other_model_case(rank, n, stage):
    try:
        zero.shard(OtherModel(HIDDEN + rank), stage, lr=0.1)
        return "no error"
    except comm.MismatchError as error:
        return str(error)


@pytest.mark.parametrize("stage", STAGES)
def test_ranks_with_different_models_are_refused(stage):
    for text in on_ranks(other_model_case, 2, stage):
        assert "start weights" in text and "rank 0" in text and "rank 1" in text


# --- ranks that leave or are late ----------------------------------------------------------------


def late_case(rank, n):
    patient = dist.new_group(timeout=datetime.timedelta(seconds=30))
    hasty = dist.new_group(timeout=datetime.timedelta(seconds=1))
    text = ""
    if rank == 0:
        try:
            comm.all_reduce(torch.zeros(4), group=hasty, name="late")
        except comm.CommError as error:
            text = str(error)
    else:
        time.sleep(1.5)
    return text, comm.all_gather_small(torch.tensor([rank]), group=patient).flatten().tolist()


def test_no_wait_is_longer_than_the_groups_timeout():
    (text, rows), (_, others) = on_ranks(late_case, 2)
    assert text.startswith("rank 0 lost its peers in all_reduce(late, 4 x float32)")
    assert "did not come here in time" in text
    assert rows == others == [0, 1]


def lost_case(rank, n, stage, moment):
    """Rank 1 raises in the second step."""
    model, opt = sharded(rank, n, stage)

    def fail(*_):
        raise ValueError(f"rank {rank} fails in {moment}")

    train_sharded(model, opt, 1)
    if rank == 1 and moment == "forward":
        model[1].register_forward_hook(fail)
    if rank == 1 and moment == "backward":
        model[1].register_full_backward_hook(fail)
    if rank == 1 and moment == "step":
        opt.register_step_pre_hook(fail)
    train_sharded(model, opt, 3)


MOMENTS = [(0, "step"), (1, "step"), (2, "backward"), (3, "forward"), (3, "backward")]


@pytest.mark.parametrize(("stage", "moment"), [m for m in MOMENTS if m[0] in STAGES])
def test_a_rank_that_raises_ends_the_others(stage, moment):
    """The first cause is named first, whatever its victims say."""
    with pytest.raises(zero.RankError) as error:
        on_ranks(lost_case, 2, stage, moment, timeout=20)
    assert str(error.value).startswith(f"rank 1 raised ValueError: rank 1 fails in {moment}")


# --- backends ------------------------------------------------------------------------------------


def poor_gloo_case(rank, n, stage):
    """A torch whose gloo has no reduce-scatter and no all-gather of tensors."""

    def missing(*args, **kwargs):
        raise RuntimeError("ProcessGroupGloo does not support this")

    for name in (
        *("reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "all_to_all"),
        *("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce"),
    ):
        setattr(dist, name, missing)
    model, opt = sharded(rank, n, stage)
    with comm.record() as log:
        train_sharded(model, opt)
    data = [e for e in log.entries if e.kind == "data"]
    fair = all(e.bytes == e.count * 4 * (n - 1) // n * (1 + (stage == 0)) for e in data)
    return full_weights(model, opt), fair, {e.op for e in data}


poor_gloo = Together(poor_gloo_case, BY_STAGE)


@pytest.mark.parametrize("stage", STAGES)
def test_gloo_without_the_operations_that_it_emulates(stage):
    """(case G3) Ours are made of sends, and send no byte more than they must. The log says which
    ones a stage used."""
    by_rank = poor_gloo(2, stage)
    assert_equal_to_reference([w for w, *_ in by_rank], reference())
    used = {"reduce_scatter", "all_gather"} if stage else {"all_reduce"}
    assert all(fair and ops == used for _, fair, ops in by_rank)


def test_without_cuda_one_line_says_gloo(capfd, monkeypatch):
    """(case G9)"""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert zero.launch(lambda rank, n: (dist.get_backend(), str(comm.device())), 2) == [
        ("gloo", "cpu"),
        ("gloo", "cpu"),
    ]
    lines = [line for line in capfd.readouterr().out.splitlines() if "gloo" in line]
    assert len(lines) == 1
    assert "zero: gloo, 2 ranks (on the CPU: this machine has no CUDA device)" in lines[0]
    assert lines[0].endswith("; collectives made of sends")


@pytest.mark.parametrize(
    ("devices", "ranks", "nccl", "backend", "reason"),
    [
        (0, 4, True, "gloo", "no CUDA device"),
        (2, 4, True, "gloo", "2 CUDA devices for 4 ranks"),
        (4, 4, False, "gloo", "4 CUDA devices for 4 ranks"),
        (4, 4, True, "nccl", "a CUDA device for each rank"),
    ],
)
def test_the_choice_of_a_backend(devices, ranks, nccl, backend, reason, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)
    chosen, why = comm._choose_backend(None, ranks)
    assert chosen == backend
    assert reason in why
    assert comm._choose_backend("gloo", ranks) == ("gloo", "as asked")


# --- two runs ------------------------------------------------------------------------------------


class Dropped(nn.Module):
    """M0's shape, with dropout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)

    def forward(self, x):
        return self.b(nn.functional.dropout(torch.tanh(self.a(x)), 0.5))


def run_case(rank, n, stage):
    model, opt = sharded(rank, n, stage, make=Dropped)
    torch.manual_seed(100 + rank)
    losses = []
    for step in range(20):
        loss = loss_of(model, *rows(step, rank, n))
        loss.backward()
        opt.clip_grad_norm_(0.5)
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses, full_weights(model, opt)


first_runs, second_runs = Together(run_case, BY_STAGE), Together(run_case, BY_STAGE)


@pytest.mark.parametrize("n", (2, 4))
@pytest.mark.parametrize("stage", STAGES)
def test_two_equal_runs_have_the_same_bits(stage, n):
    """(case G8)"""
    first, second = first_runs(n, stage), second_runs(n, stage)
    for (losses, trained), (again, trained_again) in zip(first, second, strict=True):
        assert losses == again
        assert_same_on_all_ranks([trained, trained_again])
    assert first[0][0] != first[1][0], "the ranks have dropped the same elements"
