"""`Traffic` sees every call to torch.distributed, whoever makes it, and knows what is sent."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zero
from helpers import m0, rows
from zero import comm
from zero.traffic import Traffic

N = 4
SHARD = 6  # elements of a rank


def built_in_collectives(rank: int, n: int) -> dict[str, int]:
    one, whole = torch.ones(SHARD), torch.ones(SHARD * n)
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather([torch.empty(SHARD) for _ in range(n)], one),
        "all_gather flat": lambda: gather_flat(whole, one),
        "reduce_scatter": lambda: scatter_flat(one, whole),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(SHARD * n), whole),
        "broadcast": lambda: dist.broadcast(whole, 1),
        "barrier": dist.barrier,
        "ring": lambda: pass_on(one, rank, n),
    }
    sent = {}
    for name, call in calls.items():
        with Traffic() as traffic:
            call()
        sent[name] = traffic.bytes()
    return sent


# torch 2.13 gave these two collectives new names.
gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter_flat = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def pass_on(one: torch.Tensor, rank: int, n: int) -> None:
    received = torch.empty_like(one)
    requests = [dist.isend(one, (rank + 1) % n), dist.irecv(received, (rank - 1) % n)]
    for request in requests:
        request.wait()


def test_built_in_collectives():
    """A whole tensor has 4 shards of 24 bytes; every rank keeps its own shard at home."""
    for rank, sent in enumerate(zero.launch(built_in_collectives, N, quiet=True)):
        assert sent == {
            "all_reduce": 2 * 3 * 24,
            "all_gather": 3 * 24,
            "all_gather flat": 3 * 24,
            "reduce_scatter": 3 * 24,
            "all_to_all": 3 * 24,
            "broadcast": 3 * 96 if rank == 1 else 0,
            "barrier": 0,
            "ring": 24,
        }


def comm_verbs(rank: int, n: int) -> list[tuple[int, int, int]]:
    flat = torch.ones(SHARD * n)
    verbs = (comm.all_reduce, comm.reduce_scatter, comm.all_gather, comm.broadcast)
    found = []
    for verb in verbs:
        with comm.record() as log, Traffic() as traffic:
            verb(flat)
        found.append((log.bytes(), traffic.bytes(floating=True), traffic.bytes(floating=False)))
    return found


def test_the_log_of_comm_is_honest():
    for ranks in zero.launch(comm_verbs, N, quiet=True):
        for logged, data, digests in ranks:
            assert logged == data
            assert digests == 8 * (N - 1)


def other_libraries(rank: int, n: int) -> list[list[tuple]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    x, y = rows(0, rank, n)
    replica = nn.parallel.DistributedDataParallel(m0())
    sharded = fully_shard(m0(), mesh=init_device_mesh("cpu", (n,)))
    found = []
    for model in (replica, sharded):
        with Traffic() as traffic:
            nn.functional.mse_loss(model(x), y).backward()
        found.append([(call.op, call.count, call.bytes) for call in traffic.calls])
    return found


def test_other_libraries_are_seen_too():
    """DDP sends from inside C++: 174 gradients, half of them twice on 2 ranks. FSDP2 pads every
    weight to whole rows: 7 x 7 + 7 + 3 x 13 + 3 elements a rank."""
    for ddp, fsdp in zero.launch(other_libraries, 2, quiet=True):
        assert ddp == [("allreduce_", 174, 174 * 4)]
        shard = 7 * 7 + 7 + 3 * 13 + 3
        assert [op for op, *_ in fsdp] == ["_allgather_base_", "_reduce_scatter_base_"]
        assert [count for _, count, _ in fsdp] == [shard, shard]
        assert [sent for *_, sent in fsdp] == [shard * 4, shard * 4]


def unknown_call(rank: int, n: int) -> str:
    with Traffic(), pytest.raises(NotImplementedError) as caught:
        dist.gather(torch.ones(1), [torch.ones(1) for _ in range(n)] if rank == 0 else None)
    return str(caught.value)


def test_a_call_it_does_not_know_is_an_error():
    for message in zero.launch(unknown_call, 2, quiet=True):
        assert "c10d.gather_" in message
