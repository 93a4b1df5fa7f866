"""How training starts: equal on all ranks, also on one rank alone, or refused."""

import pytest
import torch
from torch import nn

import zero
from helpers import (
    ADAMW,
    STAGES,
    Together,
    assert_equal_to_reference,
    assert_same_on_all_ranks,
    full_weights,
    m0,
    on_ranks,
    reference,
    sharded,
    train_sharded,
    weights,
)

WORLDS = (2, 4)


# --- equal starts --------------------------------------------------------------------------------


def seeds_case(rank, n, stage):
    """Every rank builds another model."""
    model, opt = sharded(rank, n, stage, make=lambda: m0(seed=rank))
    start = full_weights(model, opt)
    train_sharded(model, opt)
    return start, full_weights(model, opt)


seeds_runs = Together(seeds_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("stage", STAGES)
def test_all_ranks_start_from_rank_0(stage, n):
    """(case A10)"""
    by_rank = seeds_runs(n, stage)
    assert_equal_to_reference([start for start, _ in by_rank], weights(m0(0)), atol=1e-12)
    assert_equal_to_reference([trained for _, trained in by_rank], reference())


class Normed(nn.Module):
    """M0 with batch statistics, a table that is not saved, and a frozen layer; all by rank."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.a, self.norm, self.b = nn.Linear(7, 13), nn.BatchNorm1d(13), nn.Linear(13, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.norm.running_mean += rank
        self.register_buffer("table", torch.full((2, 2), float(rank)), persistent=False)
        self.register_buffer("flag", torch.tensor(rank == 1))

    def forward(self, x):
        return self.frozen(self.b(torch.tanh(self.norm(self.a(x)))))


def buffers_case(rank, n, stage):
    model = Normed(rank + 1)
    inputs = []
    model.norm.register_forward_hook(lambda module, args, output: inputs.append(args[0].detach()))
    opt = zero.shard(model, stage, **ADAMW)
    start = {name: b.clone() for name, b in model.named_buffers()}
    train_sharded(model, opt)
    with opt.full_params():
        saved = {name: t.clone() for name, t in model.state_dict().items()}
    return start, saved, [x.mean(0) for x in inputs], model.table


buffers_runs = Together(buffers_case, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_buffers_start_equal_and_then_follow_the_rank(stage):
    """(case A11) Policy: rank 0's buffers at the start; afterwards each rank keeps its own."""
    by_rank = buffers_runs(2, stage)
    plain = Normed(1)
    for start, *_ in by_rank:
        assert_same_on_all_ranks([start, dict(plain.named_buffers())])
    for _, saved, means, table in by_rank:
        expected = torch.full((13,), 1.0)
        for mean in means:
            expected = 0.9 * expected + 0.1 * mean
        assert len(means) == 4
        assert torch.allclose(saved["norm.running_mean"], expected, atol=1e-6)
        assert saved["norm.num_batches_tracked"] == 4
        assert torch.equal(table, torch.ones(2, 2))
        assert torch.equal(saved["frozen.weight"], plain.frozen.weight)
        assert saved.keys() == plain.state_dict().keys()
    trained = [{k: v for k, v in r[1].items() if "running" not in k} for r in by_rank]
    assert_same_on_all_ranks(trained)
    assert not torch.equal(*(r[1]["norm.running_mean"] for r in by_rank))


# --- a world of one ------------------------------------------------------------------------------


class OneElement(nn.Module):
    """A parameter of shape (1,) beside M0."""

    def __init__(self):
        super().__init__()
        self.body, self.gain = m0(), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.body(x) * self.gain


def alone_case(rank, n, stage):
    results = []
    for make in (m0, OneElement):
        model, opt = sharded(rank, n, stage, make=make)
        with zero.comm.record() as log:
            train_sharded(model, opt)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        results.append((full_weights(model, opt), log.bytes() + log.bytes("control"), len(grads)))
    return results


@pytest.mark.parametrize("stage", STAGES)
def test_a_world_of_one(stage):
    """(case A13) Sends nothing, trains the same, and `zero_grad` frees the gradients."""
    for (trained, sent, grads), make in zip(on_ranks(alone_case, 1, stage)[0], (m0, OneElement)):
        assert_equal_to_reference([trained], reference(make=make))
        assert (sent, grads) == (0, 0)


# --- refusals ------------------------------------------------------------------------------------


def refusal(rank, n, stage):
    texts = []
    sparse = nn.Embedding(4, 5, sparse=True)
    attempts = [
        lambda: zero.shard(nn.Tanh(), stage, lr=0.1),
        lambda: zero.shard(nn.Linear(2, 2).requires_grad_(False), stage, lr=0.1),
        lambda: zero.shard(nn.Linear(2, 2, dtype=torch.complex64), stage, lr=0.1),
        lambda: zero.shard(m0(), stage, torch.optim.LBFGS, lr=0.1),
        lambda: zero.shard(m0(), 4, lr=0.1),
        lambda: zero.shard(m0(), stage, precision="int8", lr=0.1),
        lambda: zero.shard(zero.shard(m0(), stage, lr=0.1).model, stage, lr=0.1),
        lambda: sparse_step(sparse, zero.shard(sparse, stage, lr=0.1)),
        lambda: zero.shard(m0(), stage, torch.optim.AdamW(m0().parameters())),
        lambda: zero.shard(m0(), stage, "AdamW", lr=0.1),
        lambda: zero.shard(m0(), stage, bucket_bytes=0, lr=0.1),
        lambda: zero.shard(m0(), stage, lr=0.1).clip_grad_norm_(float("nan")),
        lambda: zero.shard(m0(), stage, lr=0.1).clip_grad_norm_(1.0, norm_type=0),
    ]
    if stage == 3:
        attempts.append(lambda: zero.shard(m0(), stage, units=["Linear"], lr=0.1))
    else:
        attempts.append(lambda: zero.shard(list(m0().named_parameters()), stage, lr=0.1))
        attempts.append(lambda: zero.shard(m0(), stage, units=[nn.Linear], lr=0.1))
        attempts.append(lambda: zero.shard(m0(), stage, offload_params="disk", lr=0.1))
    for attempt in attempts:
        try:
            attempt()
            texts.append("no error")
        except (TypeError, ValueError) as error:
            texts.append(str(error))
    return texts


def sparse_step(model, opt):
    model(torch.tensor([1])).sum().backward()


refusals = Together(refusal, [(stage,) for stage in STAGES])


@pytest.mark.parametrize("stage", STAGES)
def test_what_cannot_be_sharded_is_refused_by_name(stage):
    for texts in refusals(2, stage):
        assert "no parameter that requires a gradient" in texts[0]
        assert "no parameter that requires a gradient" in texts[1]
        assert "parameter weight is torch.complex64" in texts[2]
        assert "LBFGS cannot be sharded" in texts[3] and "AdamW" in texts[3]
        assert "stage=4 is unknown" in texts[4] and "0, 1" in texts[4]
        assert "precision='int8' is unknown" in texts[5] and "bf16" in texts[5]
        assert "parameter 0.weight is sharded already" in texts[6]
        assert "weight has a sparse gradient" in texts[7]
        assert "optimizer=AdamW (" in texts[8] and "must be a class" in texts[8]
        assert "optimizer='AdamW' must be a class" in texts[9]
        assert "bucket_bytes=0 leaves no room" in texts[10]
        assert "max_norm=nan must be positive" in texts[11]
        assert "norm_type=0 must be positive" in texts[12]
        if stage == 3:
            assert "units=['Linear'] must be a list of module classes" in texts[13]
        else:
            assert "number 0 of the parameters is ('" in texts[13]
            assert "units is for stage 3" in texts[14]
            assert "offload_params is for stage 3" in texts[15]
