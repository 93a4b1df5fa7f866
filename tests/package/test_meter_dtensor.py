"""The meter around PyTorch's own sharded training, whose tensors have parts on every rank."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from helpers import loss_of, m0, on_ranks, rows, weights
from zero.meter import Meter


def fully_sharded_case(rank, n, metered):
    mesh = init_device_mesh("cpu", (n,))
    model = m0()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    meter, seen = Meter(model, opt), []
    for step in range(2):
        loss = loss_of(model, *rows(step, rank, n))
        loss.backward()
        if metered:
            with meter:
                opt.step()
                seen.append(meter.live())
        else:
            opt.step()
        opt.zero_grad()
    return {name: w.to_local() for name, w in weights(model).items()}, seen


def test_the_first_step_of_a_fully_sharded_model():
    """It makes the moments, DTensors too; a rank's parts count, and nothing else changes."""
    plain = on_ranks(fully_sharded_case, 2, False)
    for rank, (trained, seen) in enumerate(on_ranks(fully_sharded_case, 2, True)):
        mine = 4 * sum(w.numel() for w in trained.values())
        padded = 4 * (7 * 8 + 3 * 14)  # rank 1 has 6 of 13 rows, and 2 of 5
        for live in seen:
            assert live["parameters"] == padded
            assert live["optimizer"] == 2 * mine == 2 * (padded if rank == 0 else 4 * 76)
            assert live["counters"] == 4 * 4
        assert all(torch.equal(trained[name], w) for name, w in plain[rank][0].items())
