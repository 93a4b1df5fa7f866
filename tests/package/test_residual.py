"""Predicted bytes of activations, and of what dividing them sends, are the measured ones."""

import pytest
import torch
import torch.distributed as dist

from helpers import Together
from zero import comm, formulas, models, residual
from zero.activations import checkpoint_blocks
from zero.meter import Meter
from zero.stores import FileStore
from zero.tensor_parallel import parallelize

LAYERS, BATCH, TIME, WIDTH, HEADS, VOCABULARY = 2, 3, 8, 24, 4, 11


def measured(rank, world_size, mode, dtype, cut):
    """Bytes of activations after forward, and bytes sent for checkpoints and for the cut."""
    torch.manual_seed(0)
    model = models.GPT(VOCABULARY, TIME, LAYERS, HEADS, WIDTH).to(dtype)
    if cut:
        parallelize(model, None)
    options = {"checkpoint": {}, "partition": {"partition": dist.group.WORLD}}
    options["offload"] = {**options["partition"], "offload": FileStore()}
    if mode != "none":
        checkpoint_blocks(model, **options[mode])
    x = torch.randint(VOCABULARY, (BATCH, TIME))
    y = x.roll(1, 1)
    with Meter(model) as meter, comm.record() as log:
        meter.watch(x, y)
        loss = model(x, y)
        kept = meter.mark("after forward")["activations"]
        loss.backward()
    sent = {"a checkpoint": 0, "other": 0}
    for entry in log.entries:
        sent["a checkpoint" if entry.name.startswith("a checkpoint") else "other"] += entry.bytes
    return kept, *sent.values()


CASES = [(m, d, True) for m in residual.MODES for d in (torch.float32, torch.bfloat16)]
runs = Together(measured, [*CASES, ("none", torch.float32, False)])


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_bytes_are_as_predicted(world_size):
    for mode, dtype, cut in [
        *CASES,
        *([("none", torch.float32, False)] if world_size == 1 else []),
    ]:
        how = {"tp": world_size, "size": dtype.itemsize}
        shape = (BATCH, TIME, WIDTH)
        kept = residual.activations(mode, LAYERS, *shape, HEADS, VOCABULARY, cut=cut, **how)
        parts = residual.partition_sent(LAYERS, *shape, **how)
        sums = residual.tensor_parallel_sent(mode, LAYERS, *shape, VOCABULARY, **how)
        expected = kept, parts if mode in ("partition", "offload") else 0, sums
        for found in runs(world_size, mode, dtype, cut):
            assert found == expected, (mode, dtype, cut)


def test_parts_that_do_not_divide():
    assert residual.checkpoint(1, 5, 7) == 35 * 4
    assert residual.checkpoint(1, 5, 7, parts=4) == 9 * 4
    assert residual.partition_sent(3, 1, 5, 7, tp=4) == 3 * 3 * 9 * 4


def test_the_paper_and_the_exact_figures_agree():
    """GPT-2 1.5B: 60 GB by the paper's estimate of 12 values; exactly 16 and the probabilities."""
    shape = {"batch": 32, "time": 1024, "width": 1600}
    estimate = 2 * formulas.activation_values(1600, 32, 1024, 48)
    exact = 48 * residual.block(**shape, heads=25, size=2)
    assert estimate == pytest.approx(60e9, rel=0.01)
    assert 16 / 12 < exact / estimate < 1.35
    whole = residual.activations("checkpoint", 48, **shape, heads=25, vocabulary=0, size=2)
    assert whole == pytest.approx(formulas.checkpoint_bytes(1600, 32, 1024, 48), rel=0.05)
    parts = residual.partition_sent(48, **shape, tp=16, size=2)
    sums = residual.tensor_parallel_sent("partition", 48, **shape, vocabulary=0, tp=16, size=2)
    assert parts / sums < 0.1, "the paper: under a tenth of what tensor parallelism sends itself"


def test_an_unknown_mode():
    with pytest.raises(ValueError, match="mode 'some' is unknown"):
        residual.activations("some", 1, 1, 1, 1, 1, 1)
