"""Measured = predicted, to the last byte: what each rank keeps, and what it sends.

Every rank trains small models at each stage, in each precision, with optimizers of two, one and no
moments, under the memory meter and the byte log; the formulas must give exactly what these saw.
"""

import gc
import itertools
from functools import cache

import pytest
import torch
from torch import nn

import zero
from helpers import even_rows, loss_of, m0
from zero import comm, formulas
from zero.meter import KINDS, Meter, sent_by_op
from zero.traffic import Traffic

STAGES = (0, 1, 2, 3)
OPTIMIZERS = {
    2: (torch.optim.AdamW, {"lr": 1e-2}),
    1: (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    0: (torch.optim.SGD, {"lr": 1e-2}),
}
TENSORS = 4  # M0 has two weights and two biases


def frozen_m0() -> nn.Module:
    model = m0()
    model[0].bias.requires_grad_(False)
    return model


def million() -> nn.Module:
    return zero.models.MLP((7, 990, 990, 5))


MODELS = {"M0": m0, "frozen bias": frozen_m0, "million": million}
# Stage, precision, moments, model.
CASES = [
    *itertools.product(STAGES, ("fp32", "bf16"), (2,), ("M0",)),
    *itertools.product((0, 3), ("fp16",), (2,), ("M0",)),
    *itertools.product(STAGES, ("fp32",), (1,), ("M0",)),
    *itertools.product(STAGES, ("bf16",), (0,), ("M0",)),
    *itertools.product(STAGES, ("fp32",), (2,), ("frozen bias", "million")),
    (3, "bf16", 2, "frozen bias"),
]


def train_and_measure(rank: int, n: int) -> dict[tuple, dict]:
    return {case: measure(rank, n, *case) for case in CASES}


def measure(rank: int, n: int, stage: int, precision: str, moments: int, name: str) -> dict:
    model = MODELS[name]()
    optimizer, hyper = OPTIMIZERS[moments]
    opt = zero.shard(model, stage, optimizer, precision=precision, **hyper)
    with Meter(model, opt) as meter:
        one_step(model, opt, rank, n)  # makes the optimizer's states
        opt.zero_grad()
        with comm.record() as log, Traffic() as traffic:
            one_step(model, opt, rank, n)
        gc.collect()  # what hangs together in a circle is not kept, only not yet freed
        live = meter.live()
    return {
        "live": live,
        "total": meter.current,
        "peak": meter.peak,
        "numels": [b.layout.numel for b in opt.buckets],
        "sent": sent_by_op(log),
        "floats sent": traffic.bytes("send", floating=True),
        "stepped": opt.stepped,
    }


def one_step(model: nn.Module, opt: torch.optim.Optimizer, rank: int, n: int) -> None:
    x, y = even_rows(0, rank, n)
    dtype = next(model.parameters()).dtype
    opt.scale(loss_of(model, x.to(dtype), y.to(dtype))).backward()
    opt.step()


@cache
def measured(n: int) -> list[dict[tuple, dict]]:
    return zero.launch(train_and_measure, n, quiet=True)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_bytes_kept_and_sent(case, n):
    """(case G12) For M0 and for a million parameters: what the formulas estimate of parameters,
    gradients and optimizer states is what is there, not within 5 % but exactly."""
    stage, precision, moments, name = case
    frozen = [13] if name == "frozen bias" else []
    for rank, ranks_cases in enumerate(measured(n)):
        found = ranks_cases[case]
        numels = found["numels"]
        assert sum(numels) == sum(p.numel() for p in MODELS[name]().parameters()) - sum(frozen)
        predicted = formulas.model_states(
            numels, stage, n, precision, moments, rank=rank, frozen=frozen
        )
        live = found["live"]
        kept = {kind: live[kind] for kind in ("parameters", "gradients", "optimizer")}
        assert kept == vars(predicted)
        assert set(live) == set(KINDS)
        assert live["activations"] == live["communication"] == 0
        if moments < 2:
            assert live["counters"] == 0
        assert sum(live.values()) == found["total"] <= found["peak"]

        assert found["stepped"]
        assert found["sent"] == formulas.wire(numels, stage, n, precision, frozen=frozen)
        assert found["floats sent"] == sum(found["sent"].values())


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_adam_counts_steps_once_a_slice(n):
    """A scalar for each parameter that a rank owns a part of, listed apart."""
    at_stage_0 = [r[(0, "fp32", 2, "M0")]["live"]["counters"] for r in measured(n)]
    at_stage_1 = [r[(1, "fp32", 2, "M0")]["live"]["counters"] for r in measured(n)]
    assert at_stage_0 == [TENSORS * 4] * n
    assert TENSORS * 4 <= sum(at_stage_1) <= (TENSORS + n - 1) * 4


def send_two_micro_batches(rank: int, n: int) -> list[tuple[dict, dict]]:
    found = []
    for stage in STAGES:
        model = m0()
        opt = zero.shard(model, stage)
        with comm.record() as log:
            for _ in range(2):
                loss_of(model, *even_rows(0, rank, n)).backward()
            opt.step()
        numels = [b.layout.numel for b in opt.buckets]
        found.append((sent_by_op(log), formulas.wire(numels, stage, n, micro_batches=2)))
    return found


def test_bytes_sent_for_two_micro_batches():
    for ranks in zero.launch(send_two_micro_batches, 2, quiet=True):
        for sent, predicted in ranks:
            assert sent == predicted


# --- peaks ---------------------------------------------------------------------------------------

BUCKET = 20_000


def peaks_of_a_step(rank: int, n: int) -> dict[int, dict]:
    found = {}
    for stage in STAGES:
        model = zero.models.GPT(vocab_size=30, block_size=16, layers=3, heads=2, width=32)
        opt = zero.shard(model, stage, lr=1e-3, bucket_bytes=BUCKET)
        with Meter(model, opt) as meter:
            tokens = torch.arange(32).view(2, 16) % 30
            model(tokens, tokens).backward()
            opt.step()
        found[stage] = {
            "peaks": meter.peaks(),
            "shard": 4 * sum(b.layout.shard_numel for b in opt.buckets),
            "whole": 4 * sum(b.layout.padded_numel for b in opt.buckets),
            "largest": sorted(4 * b.layout.padded_numel for b in opt.buckets)[-2:],
        }
    return found


def test_peaks_by_kind():
    """Activations are the same at every stage; what a stage divides never exists in full."""
    for found in zero.launch(peaks_of_a_step, 4, quiet=True):
        peaks = {stage: found[stage]["peaks"] for stage in STAGES}
        assert len({peaks[stage]["activations"] for stage in STAGES}) == 1
        largest_layer = 4 * (4 * 32 * 32 + 4 * 32)  # its gradients arrive beside the flat buffer
        for stage in (0, 1):
            whole = found[stage]["whole"]
            assert peaks[stage]["parameters"] == whole
            assert whole <= peaks[stage]["gradients"] <= whole + largest_layer
        assert peaks[2]["parameters"] == found[2]["whole"]
        assert peaks[2]["gradients"] <= found[2]["shard"] + 2 * BUCKET
        assert peaks[3]["parameters"] <= found[3]["shard"] + sum(found[3]["largest"])
        assert found[3]["shard"] + sum(found[3]["largest"]) < found[3]["whole"]
